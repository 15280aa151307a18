"""Columns of a delimited text file (.csv, .tsv, .txt): indexed once, then parsed only where rows are asked for."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import numpy as np

from longhmm.data.array_source import Columns, check_range, column_indices, one_line
from longhmm.data.csv_layout import ROWS_PER_MARK, RowIndex, parse_number, scan, sniff, split
from longhmm.errors import DataError


class CSVSource:
    """Numeric columns of a text file; an empty field, "nan" or "NA" is missing (NaN).

    Opening looks at the first lines. The first use of `length`, `dtype` or `read` scans the bytes once. A column of
    whole numbers without gaps is int64; if any chosen column is not, all are float64.
    """

    in_memory = False

    def __init__(self, path: Path, columns: Columns = None) -> None:
        self.name = str(path)
        self._path = path
        try:
            self._layout = sniff(path)
        except OSError as error:
            raise DataError(f"{path} could not be opened ({one_line(error)}); check its permissions") from error
        chosen = column_indices(columns, self._layout.names, self.name)
        self._columns = list(range(len(self._layout.names))) if chosen is None else chosen
        self.dim = len(self._columns)

    @functools.cached_property
    def _rows(self) -> RowIndex:
        rows = scan(self._path, self._layout, self._columns)
        if rows.length == 0:
            raise DataError(f"{self.name} is empty (no rows after its header); pass at least one observation")
        return rows

    @property
    def length(self) -> int:
        """Number of rows of data, the header not counted."""
        return self._rows.length

    @property
    def dtype(self) -> np.dtype:
        """int64 where every chosen field of the file is a whole number, else float64."""
        return np.dtype(np.int64 if self._rows.integer else np.float64)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive); no other field is parsed."""
        check_range(start, stop, self.length, self.name)
        with self._path.open("rb") as file:
            file.seek(int(self._rows.marks[start // ROWS_PER_MARK]) if start < stop else 0)
            raw = list(itertools.islice(file, start % ROWS_PER_MARK, start % ROWS_PER_MARK + stop - start))
        if len(raw) < stop - start:
            raise DataError(
                f"{self.name} ended early, at row {start + len(raw)} of {self.length}: it was changed while in use; "
                "open it again when it is complete"
            )
        lines = [line.decode("utf-8", "replace").rstrip("\r\n") for line in raw]
        block = self._parse_fast(lines)
        return self._parse_with_care(lines, start) if block is None else block

    def _parse_fast(self, lines: list[str]) -> np.ndarray | None:
        """NumPy's compiled parser, for rows that are complete; None where a row needs a closer look."""
        delimiter, width = self._layout.delimiter, len(self._layout.names)
        if not lines:
            return np.empty((0, self.dim), self.dtype)
        # The parser skips blank lines and ignores surplus fields, so both are looked for first.
        if delimiter is None:
            complete = all(len(line.split()) == width for line in lines)
        else:
            complete = all(line.count(delimiter) == width - 1 and line.strip() for line in lines)
        if not complete:
            return None
        try:
            return np.loadtxt(
                lines, self.dtype, comments=None, delimiter=delimiter, usecols=self._columns, ndmin=2, quotechar='"'
            )
        except (ValueError, OverflowError):
            return None

    def _parse_with_care(self, lines: list[str], start: int) -> np.ndarray:
        """Field by field: missing ones become NaN, anything else that is not a number is reported with its place."""
        names = self._layout.names
        block = np.empty((len(lines), self.dim), self.dtype)
        for i, line in enumerate(lines):
            fields = split(line, self._layout.delimiter)
            if len(names) == 1 and not fields:
                fields = [""]  # a blank line in a file of one column is a missing value
            place = f"row {start + i} (line {self._layout.line + start + i}) of {self.name}"
            if len(fields) != len(names):
                raise DataError(
                    f"{place} has {len(fields)} fields but must have {len(names)}, as the first row; "
                    "mend or remove that line (a missing value is an empty field)"
                )
            for j, column in enumerate(self._columns):
                block[i, j] = self._number(fields[column], names[column], place)
        return block

    def _number(self, field: str, column: str, place: str) -> float | int:
        number = parse_number(field)
        if number is None:
            raise DataError(
                f"{place} has {field!r} in column {column!r}, which must be a number; "
                "mend the field, leave it empty if missing, or choose numeric columns with columns=[...]"
            )
        if self.dtype.kind == "f":
            return number
        if not -(2**63) <= int(field) < 2**63:
            raise DataError(f"{place} has {field} in column {column!r}, beyond 64-bit integers; write it as {field}.0")
        return int(field)
