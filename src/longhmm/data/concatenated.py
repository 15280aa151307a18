"""Several sources one after the other, read as if they were one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from longhmm.data.array_source import check_range
from longhmm.data.sources import Source
from longhmm.errors import DataError

# Operating systems commonly allow about a thousand open files to a program.
_FILES_OPEN = 64


def in_common(parts: Sequence[Source], name: str) -> Any:
    """What all parts say about themselves, or None where they differ."""
    said = {getattr(part, name, None) for part in parts}
    return said.pop() if len(said) == 1 else None


class ConcatenatedSource:
    """Lazy sources end to end; a position finds its part by search in `starts`, and few parts are open at a time."""

    in_memory = False

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts = list(parts)
        self.starts = np.concatenate([[0], np.cumsum([part.length for part in self.parts], dtype=np.int64)])
        self.length = int(self.starts[-1])
        self.dim = self.parts[0].dim
        for number, part in enumerate(self.parts):
            if part.dim != self.dim:
                raise DataError(
                    f"sequence {number} ({part.name}) has {part.dim} features but sequence 0 ({self.parts[0].name}) "
                    f"has {self.dim}; give every sequence the same features, for example with columns=[...]"
                )
        self.dtype = np.result_type(*{part.dtype for part in self.parts})
        self.rate: float | None = in_common(self.parts, "rate")
        self.unit: str | None = in_common(self.parts, "unit")
        more = len(self.parts) - 1
        self.name = self.parts[0].name + (f" and {more} more" if more else "")
        self._open: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()

    def part_at(self, position: int) -> Source:
        """The part that holds a position."""
        return self.parts[int(np.searchsorted(self.starts, position, side="right")) - 1]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive), from as many parts as they touch."""
        check_range(start, stop, self.length, self.name)
        block = np.empty((stop - start, self.dim), self.dtype)
        number = int(np.searchsorted(self.starts, start, side="right")) - 1
        position = start
        while position < stop:
            first, last = int(self.starts[number]), min(stop, int(self.starts[number + 1]))
            block[position - start : last - start] = self.parts[number].read(position - first, last - first)
            self._keep_few_open(number)
            position, number = last, number + 1
        return block

    def _keep_few_open(self, number: int) -> None:
        with self._lock:
            self._open[number] = None
            self._open.move_to_end(number)
            if len(self._open) > _FILES_OPEN:
                oldest, _ = self._open.popitem(last=False)
                close = getattr(self.parts[oldest], "close", None)
                if close is not None:
                    close()

    def __getstate__(self) -> dict[str, object]:
        state = dict(self.__dict__)
        state["_open"] = OrderedDict()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
