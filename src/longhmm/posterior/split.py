"""Data cut in two, for training and for judging, without reading them."""

from __future__ import annotations

import numpy as np

from longhmm.data.array_source import ArraySource
from longhmm.data.sequences import Sequences
from longhmm.data.sources import Source
from longhmm.errors import DataError


class Stretch:
    """Rows `[start, stop)` of another source, read on demand."""

    in_memory = False

    def __init__(self, source: Source, start: int, stop: int) -> None:
        self.source, self.start = source, start
        self.length, self.dim, self.dtype, self.name = stop - start, source.dim, source.dtype, source.name

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive), counted from the start of the stretch."""
        return self.source.read(self.start + start, self.start + stop)


def split(sequences: Sequences, held_out: float) -> tuple[Sequences, Sequences, bool]:
    """Training data, held-out data, and whether the second continue the first.

    The last share `held_out` of one sequence is held out; of many, whole sequences from the end.
    """
    if not 0 < held_out < 1:
        raise DataError(f"held_out must be a share between 0 and 1, got {held_out!r}.")
    if sequences.n_sequences == 1:
        cut = round(sequences.length * (1 - held_out))
        if not 0 < cut < sequences.length:
            raise DataError(f"{sequences.name} is too short to hold out {held_out:.0%}; pass the test data as test=.")
        parts = np.array([0, cut, sequences.length])
        return part(sequences, parts[:2]), part(sequences, parts[1:]), True
    wanted = sequences.length * (1 - held_out)
    number = int(np.clip(np.searchsorted(sequences.offsets, wanted), 1, sequences.n_sequences - 1))
    return part(sequences, sequences.offsets[: number + 1]), part(sequences, sequences.offsets[number:]), False


def part(sequences: Sequences, offsets: np.ndarray) -> Sequences:
    """The rows from the first to the last of `offsets`, cut into sequences there."""
    start, stop = int(offsets[0]), int(offsets[-1])

    def cut(source: Source | None) -> Source | None:
        if source is None:
            return None
        if isinstance(source, ArraySource):
            return ArraySource(source.values[start:stop], source.name)
        return Stretch(source, start, stop)

    values = cut(sequences.source)
    assert values is not None
    return Sequences(values, np.asarray(offsets) - start, cut(sequences._mask), cut(sequences._states))
