"""Arrays as sources: those that lie in memory, and those that are read one slice at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from longhmm.errors import DataError

Columns = str | int | Sequence[str | int] | None

_HINTS = {
    "c": "pass the real and imaginary parts as two columns",
    "O": "convert it to float64 and mark missing values with NaN",
    "S": "convert the text to numbers",
    "U": "convert the text to numbers",
    "T": "convert the text to numbers",
    "M": "leave out the times, or choose the numeric columns with columns=[...]",
    "m": "convert the durations to numbers, or choose the numeric columns with columns=[...]",
    "V": "choose one field of the structured array",
}


def one_line(error: BaseException) -> str:
    """What another library says, made to fit into one sentence."""
    return " ".join(str(error).split())[:300]


def stored_dtype(dtype: Any, name: str) -> np.dtype:
    """The dtype in which values of `dtype` are handed on: integers stay integers, floats are float32 or float64."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.name == "bfloat16":
        return np.dtype(np.float32)
    if dtype.kind in "iu":
        return dtype.newbyteorder("=")
    if dtype.kind == "f":
        # float16 has too few digits for densities; wider than float64 is supported by no accelerator.
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    hint = _HINTS.get(dtype.kind, "convert it to float64")
    raise DataError(f"{name} must hold real numbers (integers or floats) but has dtype {dtype}; {hint}")


def checked_shape(shape: Iterable[Any], name: str) -> tuple[int, int]:
    """`(length, dim)` of data shaped (time,) or (time, feature)."""
    shape = tuple(shape)
    if len(shape) not in (1, 2):
        raise DataError(
            f"{name} must have shape (time,) or (time, feature) but has {len(shape)} dimensions, shape {shape}; "
            "reshape it, or pass a list of 2-D arrays for many sequences"
        )
    try:
        length, dim = operator.index(shape[0]), operator.index(shape[1]) if len(shape) == 2 else 1
    except TypeError:
        raise DataError(
            f"{name} has unknown shape {shape}; make its length known first (for a Dask array: compute_chunk_sizes())"
        ) from None
    if length == 0 or dim == 0:
        raise DataError(f"{name} is empty (shape {shape}); pass at least one observation of at least one feature")
    return length, dim


def check_range(start: int, stop: int, length: int, name: str) -> None:
    """Refuse rows that do not exist: slicing would silently hand back fewer."""
    if not 0 <= start <= stop <= length:
        raise DataError(f"rows {start} to {stop} of {name} were asked for, but it has rows 0 to {length}; ask within")


def column_indices(columns: Columns, names: Sequence[Any], source: str) -> list[int] | None:
    """Positions of the chosen columns (None: all), given by name or by position, in the order asked for."""
    if columns is None:
        return None
    wanted = [columns] if isinstance(columns, str) or np.ndim(columns) == 0 else list(columns)  # type: ignore[arg-type]
    if not wanted:
        raise DataError(f"columns=[] chooses nothing from {source}; name at least one of {list(names)}")
    indices = []
    for column in wanted:
        if column in names:
            found = list(names).index(column)
        elif isinstance(column, (int, np.integer)) and 0 <= column < len(names):
            found = int(column)
        else:
            raise DataError(f"{source} has no column {column!r}; columns= must be taken from {list(names)}")
        indices.append(found)
    return indices


class ArraySource:
    """Values that lie in memory, shaped (time, feature); `read` hands out views that cannot be written to."""

    in_memory = True
    rate: float | None = None  # samples per second, where the file says
    unit: str | None = None

    def __init__(self, array: Any, name: str = "the array", columns: Columns = None) -> None:
        values = np.asarray(array)
        dtype = stored_dtype(values.dtype, name)
        self.length, self.dim = checked_shape(values.shape, name)
        values = values.reshape(self.length, self.dim)
        chosen = column_indices(columns, range(self.dim), name)
        if chosen is not None:
            values, self.dim = values[:, chosen], len(chosen)
        # A view, so that making it read-only leaves the caller's own array as it was.
        self.values = values.astype(dtype, copy=False).view()
        self.values.flags.writeable = False
        self.name = name
        self.dtype = dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive)."""
        check_range(start, stop, self.length, self.name)
        return self.values[start:stop]


class SlicedSource:
    """Anything with `shape`, `dtype` and slicing, of which only the rows asked for are ever touched.

    With `reopen`, the array belongs to a file that may be let go by `close` (or left out of a pickle) and is opened
    again when next needed, so that thousands of files never exhaust the file handles.
    """

    in_memory = False
    concurrent = False  # whether several reads at once hide one another's latency
    rate: float | None = None
    unit: str | None = None

    def __init__(self, array: Any, name: str, columns: Columns = None, reopen: Callable[[], Any] | None = None) -> None:
        self.name = name
        self.dtype = stored_dtype(array.dtype, name)
        self.length, self.dim = checked_shape(array.shape, name)
        self._columns = column_indices(columns, range(self.dim), name)
        if self._columns is not None:
            self.dim = len(self._columns)
        self._reopen = reopen
        self._array = None if reopen is not None else array
        # Only NumPy's own arrays take scattered rows in one call without reading whole chunks for each.
        self.mapped = isinstance(array, np.ndarray)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows of a memory map at any positions, `rows.shape + (dim,)`, in one call."""
        array = self._array
        if array is None and self._reopen is not None:
            self._array = array = self._reopen()
        picked = np.asarray(array[rows])  # type: ignore[index]
        if picked.ndim == rows.ndim:
            picked = picked[..., None]
        if self._columns is not None:
            picked = picked[..., self._columns]
        return picked.astype(self.dtype, copy=False)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive), copied out of the storage."""
        check_range(start, stop, self.length, self.name)
        array = self._array
        try:
            if array is None and self._reopen is not None:
                self._array = array = self._reopen()
            block = np.asarray(array[start:stop])  # type: ignore[index]
        except DataError:
            raise
        except Exception as error:  # storage libraries raise what they like; the user needs the place
            raise DataError(
                f"rows {start} to {stop} of {self.name} could not be read ({one_line(error)}); "
                "the data may be damaged or cut short, so write or copy them again"
            ) from error
        if block.ndim == 1:
            block = block[:, None]
        if block.shape[0] != stop - start:
            raise DataError(
                f"{self.name} ended early: rows {start} to {stop} were asked for but only {block.shape[0]} came; "
                "write or copy the data again"
            )
        if self._columns is not None:
            block = block[:, self._columns]
        return np.array(block, dtype=self.dtype)

    def close(self) -> None:
        """Let go of the file, if there is one; the next `read` opens it again."""
        if self._reopen is not None:
            self._array = None

    def __getstate__(self) -> dict[str, Any]:
        # A memory map would be pickled as all its contents, an HDF5 handle not at all.
        state = dict(self.__dict__)
        if self._reopen is not None:
            state["_array"] = None
        return state
