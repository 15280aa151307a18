"""Columns of a delimited text file (.csv, .tsv, .txt): indexed once, then parsed only where rows are asked for."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.formats import opener
from longhmm.data.source import Columns, Source, column_indices, refusing
from longhmm.errors import DataError

MISSING = frozenset({"", "nan", "na", "n/a", "null"})
ROWS_PER_MARK = 256  # for which one byte offset is kept: small enough to skip to a row, light enough for a billion
_CHUNK = 1 << 22
_WHOLE = b"0123456789+-\r\n"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_COMMA = re.compile(r"(?:^|[;\t])\s*[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?\s*(?:[;\t]|$)")  # as in 3,14
_BLANK_LINE = re.compile(rb'(?:\A|\n)[ \t\r"]*(?:\n|\Z)')


def parse_number(field: str) -> float | None:
    """The number a field stands for, NaN where it is missing, None where it is something else."""
    if field.lower() in MISSING:
        return float("nan")
    if "_" in field:  # Python would read 1_000 as a number; no other program does
        return None
    try:
        return float(field)
    except ValueError:
        return None


@opener(".csv", ".tsv", ".txt")
class TextSource(Source):
    """Numeric columns of a text file; an empty field, "nan" or "NA" is missing (NaN). Opening scans the bytes once.
    Whole numbers without gaps in all chosen columns are int64, all else is float64."""

    def __init__(self, path: Path, columns: Columns = None) -> None:
        self.name, self._path = str(path), path
        with refusing(f"{path} could not be opened", "check its permissions"):
            self._sniff()
            self._columns = column_indices(columns, self._names, self.name)
            whole = self._scan()
        if self.length == 0:
            raise DataError(f"{self.name} is empty (no rows after its header); pass at least one observation")
        self.dim, self.dtype = len(self._columns), np.dtype(np.int64 if whole else np.float64)
        self.names = tuple(self._names[each] for each in self._columns)

    def _sniff(self) -> None:
        """Read the first lines: skip leading '#' lines, find the delimiter, and tell a header from data."""
        path = self._path
        with path.open("rb") as file:
            head = file.readline()
            start = 3 if head.startswith(b"\xef\xbb\xbf") else 0
            file.seek(start)
            head, line = file.readline(), 1
            while head.startswith(b"#") or (head and not head.strip()):
                start, line = file.tell(), line + 1
                head = file.readline()
            after = file.tell()
            later = [text for text in (file.readline() for _ in range(5)) if text.strip(b"\r\n")]
        if not head:
            raise DataError(f"{path} is empty (no rows); pass a file with at least one observation")
        if b"\0" in head:
            raise DataError(f"{path} is not plain text (byte 0 on line {line}); save it as UTF-8 text, or as .npy")
        first = head.decode("utf-8", "replace").rstrip("\r\n")
        # A header may hold blanks and commas of its own, so the delimiter is looked for in a line of data.
        sample = later[-1].decode("utf-8", "replace").rstrip("\r\n") if later else first
        found = next((mark for mark in "\t;,|" if mark in sample), None)  # None: runs of blanks
        self._delimiter = "\t" if path.suffix.lower() == ".tsv" else found
        self._decimal = b"," if found in ("\t", ";") and _COMMA.search(sample) else b"."
        self._names, self._start, self._line = self._split(first), start, line  # data begin at that byte, that line
        # "2.0x" is a damaged number and must be reported, so only a field that does not begin like a number is a name.
        if not any(parse_number(field) is None and field[0] not in "0123456789+-." for field in self._names):
            self._names = [str(i) for i in range(len(self._names))]
            return
        if len(self._split(sample)) == 1:
            self._names = [first.strip().strip('"')]
        self._start, self._line = after, line + 1

    def _split(self, line: str) -> list[str]:
        """The fields of one line, without quotes and surrounding blanks (numbers never contain the delimiter)."""
        return [field.strip().strip('"').strip() for field in line.split(self._delimiter)]

    def _scan(self) -> bool:
        """Find where rows begin, in one pass over the bytes; whether the chosen columns hold whole numbers only."""
        marks, whole = [np.array([self._start], np.int64)], True
        rows, position, rest = 0, self._start, b""
        ended_blank, has_content = 0, False
        with self._path.open("rb") as file:
            file.seek(self._start)
            while chunk := file.read(_CHUNK):
                ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
                marks.append(position + 1 + ends[(rows + 1 + np.arange(len(ends))) % ROWS_PER_MARK == 0])
                rows += len(ends)
                position += len(chunk)
                body = chunk.rstrip(b"\r\n")
                ended_blank = chunk.count(b"\n", len(body)) + (0 if body else ended_blank)
                has_content = has_content or bool(body)
                if whole:
                    # Only lines with another line after them: blank ones at the end of the file are not data.
                    text = rest + chunk
                    cut = text.rstrip(b"\r\n").rfind(b"\n") + 1
                    whole, rest = not cut or self._are_whole(text[: cut - 1]), text[cut:]
        self.length = rows + 1 - ended_blank if has_content else 0
        self._marks = np.concatenate(marks)
        return whole and has_content and self._are_whole(rest.rstrip(b"\r\n"))

    def _are_whole(self, lines: bytes) -> bool:
        """Whether the chosen columns of complete lines hold whole numbers only, and none is missing."""
        mark = b" \t" if self._delimiter is None else self._delimiter.encode()
        edges = (mark + mark, mark + b"\n", mark + b"\r", b"\n" + mark)
        gaps = self._delimiter and (lines[:1] == mark or lines[-1:] == mark or any(edge in lines for edge in edges))
        if not gaps and not _BLANK_LINE.search(lines) and not lines.translate(None, _WHOLE + mark):
            return True  # every column does, seen at the speed of reading
        for line in lines.decode("utf-8", "replace").split("\n"):
            fields = self._split(line)
            if len(fields) != len(self._names) or not all(_INTEGER.fullmatch(fields[each]) for each in self._columns):
                return False  # a row with too few or too many fields is reported by `read`
        return True

    def fetch(self, start: int, stop: int) -> np.ndarray:
        with self._path.open("rb") as file:
            file.seek(int(self._marks[start // ROWS_PER_MARK]))
            raw = list(itertools.islice(file, start % ROWS_PER_MARK, start % ROWS_PER_MARK + stop - start))
        if len(raw) < stop - start:
            early = f"{self.name} ended early, at row {start + len(raw)} of {self.length}"
            raise DataError(f"{early}: it was changed while in use; open it again when it is complete")
        lines = [line.replace(self._decimal, b".").decode("utf-8", "replace").rstrip("\r\n") for line in raw]
        block = self._parse_fast(lines)
        return self._parse_with_care(lines, start) if block is None else block

    def _parse_fast(self, lines: list[str]) -> np.ndarray | None:
        """NumPy's compiled parser, for rows that are complete; None where a row needs a closer look."""
        delimiter, width = self._delimiter, len(self._names)
        # The parser skips blank lines and ignores surplus fields, so both are looked for first.
        if delimiter is None:
            complete = all(len(line.split()) == width for line in lines)
        else:
            complete = all(line.count(delimiter) == width - 1 and line.strip() for line in lines)
        if not complete:
            return None
        try:
            form: Any = {"comments": None, "delimiter": delimiter, "quotechar": '"', "ndmin": 2}
            return np.loadtxt(lines, self.dtype, usecols=self._columns, **form)
        except (ValueError, OverflowError):
            return None

    def _parse_with_care(self, lines: list[str], start: int) -> np.ndarray:
        """Field by field: missing ones become NaN, anything else that is not a number is reported with its place."""
        block = np.empty((len(lines), self.dim), self.dtype)
        for i, line in enumerate(lines):
            fields = self._split(line)
            if len(self._names) == 1 and not fields:
                fields = [""]  # a blank line in a file of one column is a missing value
            place = f"row {start + i} (line {self._line + start + i}) of {self.name}"
            if len(fields) != len(self._names):
                wrong = f"{place} has {len(fields)} fields but must have {len(self._names)}, as the first row"
                raise DataError(f"{wrong}; mend or remove that line (a missing value is an empty field)")
            for j, column in enumerate(self._columns):
                field, what = fields[column], f"in column {self._names[column]!r}"
                number = parse_number(field)
                if number is None:
                    remedy = "mend the field, leave it empty if missing, or choose numeric columns with columns=[...]"
                    raise DataError(f"{place} has {field!r} {what}, which must be a number; {remedy}")
                if self.dtype.kind == "i" and not -(2**63) <= int(field) < 2**63:
                    raise DataError(f"{place} has {field} {what}, beyond 64-bit integers; write it as {field}.0")
                block[i, j] = number if self.dtype.kind == "f" else int(field)
        return block
