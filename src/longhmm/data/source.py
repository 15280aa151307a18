"""What observations are read from: one small interface, and the arrays behind it, in memory or read slice by slice."""

import contextlib
import mmap
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.errors import DataError

Columns = str | int | Sequence[str | int] | None
LONG = 1 << 17  # rows of a stretch that is read for a pass, and not for windows
KEPT = 1 << 26  # bytes of a map that may stay in memory

_HINTS = {
    "c": "pass the real and imaginary parts as two columns",
    "O": "convert it to float64 and mark missing values with NaN",
    **dict.fromkeys("SUT", "convert the text to numbers"),
    "M": "leave out the times, or choose the numeric columns with columns=[...]",
    "m": "convert the durations to numbers, or choose the numeric columns with columns=[...]",
    "V": "choose one field of the structured array",
}


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextlib.contextmanager
def refusing(what: str, remedy: str) -> Iterator[None]:
    """Libraries raise what they like where data are damaged; users get one sentence with the place and the remedy."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{what} ({one_line(error)}); {remedy}") from error


def stored_dtype(dtype: Any, name: str) -> np.dtype:
    """The dtype in which values of `dtype` are handed on: integers stay integers, floats are float32 or float64."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind in "iu":
        return dtype.newbyteorder("=")
    if dtype.kind == "f" or dtype.name == "bfloat16":
        # float16 has too few digits for densities; wider than float64 is supported by no accelerator.
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    hint = _HINTS.get(dtype.kind, "convert it to float64")
    raise DataError(f"{name} must hold real numbers (integers or floats) but has dtype {dtype}; {hint}")


def checked_shape(shape: Iterable[Any], name: str) -> tuple[int, int]:
    """`(length, dim)` of data shaped (time,) or (time, feature)."""
    shape = tuple(shape)
    if len(shape) not in (1, 2):
        wrong = f"{name} must have shape (time,) or (time, feature) but has {len(shape)} dimensions, shape {shape}"
        raise DataError(f"{wrong}; reshape it, or pass a list of 2-D arrays for many sequences")
    try:
        length, dim = operator.index(shape[0]), operator.index(shape[1]) if len(shape) == 2 else 1
    except TypeError:
        remedy = "make its length known first (for a Dask array: compute_chunk_sizes())"
        raise DataError(f"{name} has unknown shape {shape}; {remedy}") from None
    if length == 0 or dim == 0:
        raise DataError(f"{name} is empty (shape {shape}); pass at least one observation of at least one feature")
    if dim > max(length, 32):
        how = f"{name} has {length} rows and {dim} columns, and rows are times"
        warnings.warn(f"{how}: transpose it if there are {length} features.", stacklevel=2)
    return length, dim


def column_indices(columns: Columns, names: Sequence[Any], source: str) -> list[int]:
    """Positions of the chosen columns, given by name or by position, in the order asked for; None chooses all."""
    if columns is None:
        return list(range(len(names)))
    wanted = [columns] if isinstance(columns, str) or np.ndim(columns) == 0 else list(columns)  # type: ignore[arg-type]
    if not wanted:
        raise DataError(f"columns=[] chooses nothing from {source}; name at least one of {list(names)}")
    indices = []
    for column in wanted:
        if column in names:
            indices.append(list(names).index(column))
        elif isinstance(column, (int, np.integer)) and 0 <= column < len(names):
            indices.append(int(column))
        else:
            raise DataError(f"{source} has no column {column!r}; columns= must be taken from {list(names)}")
    return indices


def touched(starts: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Numbers of the parts that rows `[start, stop)` touch, each with those rows, counted from where it begins."""
    first, last = (int(np.searchsorted(starts, row, side="right")) - 1 for row in (start, stop - 1))
    for number in range(first, last + 1):
        begin, end = int(starts[number]), int(starts[number + 1])
        yield number, max(start, begin) - begin, min(stop, end) - begin


class Source:
    """Observations shaped (time, feature) that are read by rows. A kind of source says how it fetches some."""

    name: str  # what errors call it
    length: int
    dim: int
    dtype: np.dtype
    in_memory = False
    concurrent = False  # whether several reads at once hide one another's latency
    rate: float | None = None  # samples per second, where a file says
    unit: str | None = None
    lengths: Sequence[int] | None = None  # of the sequences it consists of
    path: Path | None = None  # the file it was opened from
    parts: Sequence["Source"] = ()  # the sources it was made of
    names: tuple[str, ...] | None = None  # of its columns, where they have some
    made_by: str = ""  # the formulas whose columns these are, if they are
    # Gives what rows are fetched from, such as an open file, which may then be let go or left out of a pickle.
    reopen: Callable[[], Any] | None = None
    _opened: Any = None

    def fetch(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive), of which there are some; `read` sees to the rest."""
        raise NotImplementedError

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive), shape (stop - start, dim); no others are touched."""
        self.check_range(start, stop)
        if start == stop:
            return np.empty((0, self.dim), self.dtype)
        where = f"rows {start} to {stop} of {self.name} could not be read"
        with refusing(where, "the data may be damaged or cut short, so write or copy them again"):
            block = self.fetch(start, stop)
        if len(block) != stop - start:
            came = f"rows {start} to {stop} were asked for but only {len(block)} came"
            raise DataError(f"{self.name} ended early: {came}; write or copy the data again")
        return block

    def check_range(self, start: int, stop: int) -> None:
        """Refuse rows that do not exist: slicing would silently hand back fewer."""
        if not 0 <= start <= stop <= self.length:
            asked = f"rows {start} to {stop} of {self.name} were asked for"
            raise DataError(f"{asked}, but it has rows 0 to {self.length}; ask within")

    @property
    def opened(self) -> Any:
        """What rows are fetched from, opened again where it was let go."""
        if self._opened is None and self.reopen is not None:
            remedy = "it may be cut short or of another kind, so copy or write it again"
            with refusing(f"{self.name} cannot be read", remedy):
                self._opened = self.reopen()
        return self._opened

    def close(self) -> None:
        """Let go of the file, if there is one; the next `read` opens it again."""
        if self.reopen is not None:
            self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        # A memory map would be pickled as all its contents, an HDF5 handle not at all.
        return {**self.__dict__, **({} if self.reopen is None else {"_opened": None})}


class SlicedSource(Source):
    """Anything with `shape`, `dtype` and slicing, of which only the rows asked for are ever touched."""

    def __init__(self, array: Any, name: str, columns: Columns = None, reopen: Callable[[], Any] | None = None) -> None:
        self.name, self.dtype = name, stored_dtype(array.dtype, name)
        self.length, dim = checked_shape(array.shape, name)
        self._columns = None if columns is None else column_indices(columns, range(dim), name)
        self.dim = dim if self._columns is None else len(self._columns)
        self.reopen, self._opened = reopen, None if reopen is not None else array
        # Only NumPy's own arrays take scattered rows in one call without reading whole chunks for each.
        self.mapped = isinstance(array, np.ndarray)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows of a memory map at any positions, `rows.shape + (dim,)`, in one call."""
        return self._shaped(np.asarray(self.opened.take(rows, axis=0)), rows.ndim).astype(self.dtype, copy=False)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        pages: Any = None if self.reopen is None or stop - start < LONG else getattr(self.opened, "base", None)
        if hasattr(pages, "madvise") and len(pages) > KEPT:
            pages.madvise(mmap.MADV_DONTNEED)  # the system may have what was read before
        return np.asarray(self._shaped(np.asarray(self.opened[start:stop]), 1), dtype=self.dtype)

    def _shaped(self, picked: Any, axes: int) -> Any:
        """With an axis of features behind `axes` others, and the chosen columns alone."""
        picked = picked[..., None] if picked.ndim == axes else picked
        return picked if self._columns is None else picked[..., self._columns]


class ArraySource(SlicedSource):
    """Values that lie in memory, shaped (time, feature); `read` hands out views that cannot be written to."""

    in_memory = True

    def __init__(self, array: Any, name: str = "the array", columns: Columns = None, like: Any = None) -> None:
        super().__init__(np.asarray(array), name, columns)
        # A view, so that making it read-only leaves the caller's own array as it was.
        self.values = self._opened = self._shaped(self._opened, 1).astype(self.dtype, copy=False).view()
        self._columns, self.values.flags.writeable = None, False
        if like is not None:
            self.rate, self.unit, self.names, self.made_by = like.rate, like.unit, like.names, like.made_by

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]


class DaskSource(SlicedSource):
    """A Dask array, of which rows are computed where their chunks are. It is never gathered, nor sent anywhere."""

    def __init__(self, array: Any, name: str, columns: Columns = None) -> None:
        super().__init__(array, name, columns)
        self.edges = np.concatenate([[0], np.cumsum(array.chunks[0])])  # rows at which chunks begin, and the end

    def lazy(self, start: int, stop: int) -> Any:
        """Rows `start` to `stop` as a Dask array shaped (time, feature), in the dtype of the source."""
        self.check_range(start, stop)
        return self._shaped(self._opened[start:stop], 1).astype(self.dtype)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return self.read_many([(start, stop)])[0]

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """Several spans of rows at the price of one question to the cluster."""
        from dask.base import compute

        lazy = [self.lazy(*span) for span in spans]
        with refusing(f"{self.name} could not be computed", "see what makes its chunks"):
            return list(compute(*lazy))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # other processes are handed the rows they need


class ShiftedSource(Source):
    """`length` rows of another source under other numbers: row 0 is row `shift` of the other."""

    def __init__(self, other: Source, shift: int, length: int, like: Source) -> None:
        self.other, self.shift, self.parts, self.length = other, shift, [other], length
        self.name, self.dim, self.dtype, self.rate, self.unit = like.name, like.dim, like.dtype, like.rate, like.unit
        self.names, self.made_by = like.names, like.made_by

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return self.other.read(self.shift + start, self.shift + stop)
