"""Recordings in the formats of instruments: channels with names and units, at a known rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from longhmm.data.array_source import Columns, check_range, column_indices, one_line
from longhmm.errors import DataError


@dataclass
class Channels:
    """What the header of a recording says.

    Attributes:
        length: samples per channel.
        names, units: of every channel.
        rate: samples per second.
        fetch: `fetch(start, stop, channels)` reads rows of the chosen channels, `(stop - start, len(channels))`.
        lengths: samples of each sweep, if the recording consists of several.
    """

    length: int
    names: Sequence[str]
    units: Sequence[str]
    rate: float
    fetch: Callable[[int, int, list[int]], np.ndarray]
    dtype: Any = np.float32
    lengths: list[int] | None = field(default=None)


class RecordedSource:
    """Some channels of a recording, read on demand; opened again by `reopen` after it was closed or sent elsewhere."""

    in_memory = False

    def __init__(self, name: str, reopen: Callable[[], Channels], columns: Columns = None) -> None:
        self.name, self._reopen = name, reopen
        self._header: Channels | None = None
        header = self._opened()
        chosen = column_indices(columns, list(header.names), name)
        self._chosen = list(range(len(header.names))) if chosen is None else chosen
        self.length, self.dim, self.dtype = header.length, len(self._chosen), np.dtype(header.dtype)
        self.rate, self.unit = float(header.rate), _common(header.units[each] for each in self._chosen)
        self.names = tuple(header.names[each] for each in self._chosen)
        self.lengths = header.lengths
        if self.length < 1 or self.dim < 1:
            raise DataError(f"{name} is empty (no samples); give a recording with at least one.")
        if not self.rate > 0:
            raise DataError(f"{name} has the sampling rate {self.rate:g}; the file is damaged, write it again.")

    def _opened(self) -> Channels:
        if self._header is None:
            try:
                self._header = self._reopen()
            except DataError:
                raise
            except Exception as error:  # every library has errors of its own
                raise DataError(
                    f"{self.name} cannot be read ({one_line(error) or type(error).__name__}); it may be cut short or "
                    "of another kind, so copy or write it again"
                ) from error
        return self._header

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive)."""
        check_range(start, stop, self.length, self.name)
        if start == stop:
            return np.empty((0, self.dim), self.dtype)
        try:
            rows = np.asarray(self._opened().fetch(start, stop, self._chosen), self.dtype)
        except DataError:
            raise
        except Exception as error:
            raise DataError(
                f"rows {start} to {stop} of {self.name} could not be read ({one_line(error)}); "
                "the file may be damaged or cut short, so copy it again"
            ) from error
        if rows.shape != (stop - start, self.dim):
            raise DataError(f"{self.name} ended early, before row {stop} of {self.length}; copy it again")
        return rows

    def close(self) -> None:
        """Let go of the file; the next `read` opens it again."""
        self._header = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_header": None}


def missing_library(path: Any, library: str, extra: str) -> DataError:
    """The error for a file whose library is not installed."""
    return DataError(f"reading {path} needs {library}; install it with: pip install 'longhmm[{extra}]'")


def _common(units: Any) -> str | None:
    """The unit of all channels, or None where they differ or have none."""
    found = {str(unit).strip() for unit in units}
    return next(iter(found)) or None if len(found) == 1 else None
