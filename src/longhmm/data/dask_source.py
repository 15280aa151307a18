"""Dask arrays: chunks that lie with the workers of a cluster, or are made when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from longhmm.data.array_source import Columns, SlicedSource, check_range, one_line
from longhmm.errors import DataError


class DaskSource(SlicedSource):
    """A Dask array, of which rows are computed where their chunks are. It is never gathered, nor sent anywhere."""

    def __init__(self, array: Any, name: str, columns: Columns = None) -> None:
        super().__init__(array, name, columns)
        self.edges = np.concatenate([[0], np.cumsum(array.chunks[0])])  # rows at which chunks begin, and the end

    def lazy(self, start: int, stop: int) -> Any:
        """Rows `start` to `stop` as a Dask array shaped (time, feature), in the dtype of the source."""
        check_range(start, stop, self.length, self.name)
        rows = self._array[start:stop]  # type: ignore[index]
        rows = rows[:, None] if rows.ndim == 1 else rows
        return (rows if self._columns is None else rows[:, self._columns]).astype(self.dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive), fetched."""
        return self.read_many([(start, stop)])[0]

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[np.ndarray]:
        """Several spans of rows at the price of one question to the cluster."""
        from dask.base import compute

        lazy = [self.lazy(*span) for span in spans]
        try:
            return list(compute(*lazy))
        except Exception as error:  # whatever makes the chunks raises what it likes
            raise DataError(
                f"{self.name} could not be computed ({one_line(error)}); see what makes its chunks"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_array": None}  # other processes are handed the rows they need


class HeldRows:
    """Some rows of a source in memory, under the numbers that they have in the whole."""

    in_memory = False  # not all of it

    def __init__(self, whole: Any, start: int, values: np.ndarray) -> None:
        self.name, self.length, self.dim, self.dtype = whole.name, whole.length, whole.dim, whole.dtype
        self.start, self.values = start, values

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive), which must be among those held."""
        check_range(start - self.start, stop - self.start, len(self.values), f"the part of {self.name} at hand")
        return self.values[start - self.start : stop - self.start]


def is_dask(obj: Any) -> bool:
    """Whether something is an array of Dask's."""
    return type(obj).__module__.partition(".")[0] == "dask" and hasattr(obj, "chunks")


def concatenated(arrays: Sequence[Any], title: str) -> Any:
    """Many Dask arrays as one, whose chunks stay where they are."""
    import dask.array

    if not all(is_dask(array) for array in arrays):
        raise DataError(f"{title} must hold Dask arrays only, or none, but mixes them with others; make them alike")
    widths = {array.shape[1:] for array in arrays}
    if len(widths) > 1:
        raise DataError(f"{title} must all have the same features, but are shaped {sorted(widths)} beyond time")
    return dask.array.concatenate(list(arrays), axis=0)
