"""Columns of a Parquet file, one row group at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.data.array_source import Columns, check_range, column_indices, one_line
from longhmm.data.formats import library, opener
from longhmm.errors import DataError

# Windows fall anywhere, so a few decoded row groups are kept; more would approach holding the whole file.
_GROUPS_KEPT = 4


@opener(".parquet")
class ParquetSource:
    """Numeric columns of a Parquet file; nulls are NaN, and integer columns without nulls stay integer."""

    in_memory = False

    def __init__(self, path: Path, columns: Columns = None) -> None:
        self.name = str(path)
        self._path = path
        self._file: Any = None
        self._groups: OrderedDict[int, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        file = self._opened()
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
        chosen = column_indices(columns, names, self.name)
        self._columns = names if chosen is None else [names[i] for i in chosen]
        self.dim = len(self._columns)
        self.dtype = np.result_type(*(_column_dtype(file, name, names, self.name) for name in self._columns))
        rows = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self.length = int(self._starts[-1])
        if self.length == 0:
            raise DataError(f"{self.name} is empty (no rows); pass a file with at least one observation")

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive); only the row groups that hold them are decoded."""
        check_range(start, stop, self.length, self.name)
        block = np.empty((stop - start, self.dim), self.dtype)
        group = int(np.searchsorted(self._starts, start, side="right")) - 1
        filled = 0
        while filled < stop - start:
            first, last = int(self._starts[group]), int(self._starts[group + 1])
            piece = self._group(group)[start + filled - first : min(stop, last) - first]
            block[filled : filled + len(piece)] = piece
            filled += len(piece)
            group += 1
        return block

    def close(self) -> None:
        """Let go of the file and the decoded row groups; the next `read` opens it again."""
        with self._lock:
            self._file = None
            self._groups.clear()

    def _opened(self) -> Any:
        if self._file is None:
            self._file = _open(self._path)
        return self._file

    def _group(self, group: int) -> np.ndarray:
        # One reader at a time: a background reader and the main program may share this source.
        with self._lock:
            if group not in self._groups:
                self._groups[group] = self._decode(group)
                if len(self._groups) > _GROUPS_KEPT:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(group)
            return self._groups[group]

    def _decode(self, group: int) -> np.ndarray:
        try:
            table = self._opened().read_row_group(group, columns=self._columns)
        except Exception as error:  # each codec has its own errors
            raise DataError(
                f"rows {self._starts[group]} to {self._starts[group + 1]} (row group {group}) of {self.name} "
                f"could not be read ({one_line(error)}); the file may be damaged, so write or copy it again"
            ) from error
        # Columns are taken by name: the file's order need not be the order asked for.
        decoded = np.empty((table.num_rows, self.dim), self.dtype)
        for i, name in enumerate(self._columns):
            decoded[:, i] = table.column(name).to_numpy()
        return decoded

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_file"], state["_groups"] = None, OrderedDict()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def _open(path: Path) -> Any:
    pyarrow = library("parquet", path)
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path} is not a readable Parquet file ({one_line(error)}); "
            "its footer may be missing because it was cut short, so copy or write it again"
        ) from error


def _column_dtype(file: Any, name: str, names: list[str], source: str) -> np.dtype:
    from pyarrow import types

    kind = file.schema_arrow.field(name).type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        kinds = {other: file.schema_arrow.field(other).type for other in names}
        numeric = [other for other, k in kinds.items() if types.is_integer(k) or types.is_floating(k)]
        raise DataError(
            f"column {name!r} of {source} must be numeric but has type {kind}; "
            f"choose the observations with columns=[...] from {numeric}"
        )
    if types.is_floating(kind):
        return np.dtype(np.float64 if kind.bit_width == 64 else np.float32)
    # A null needs NaN, so an integer column stays integer only where the footer promises that it has none.
    if _may_hold_nulls(file, name):
        return np.dtype(np.float64)
    return np.dtype(np.uint8) if types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype())


def _may_hold_nulls(file: Any, name: str) -> bool:
    if not file.schema_arrow.field(name).nullable:
        return False
    position = [file.schema.column(i).path for i in range(len(file.schema))].index(name)
    for group in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(group).column(position).statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count > 0:
            return True
    return False
