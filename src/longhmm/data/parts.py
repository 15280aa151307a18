"""Parts of longer data: held-out rows, and stretches that stand for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.source import ArraySource
from longhmm.errors import DataError


def split(sequences: Sequences, held_out: float) -> tuple[Sequences, Sequences, bool]:
    """Training data, held-out data, and whether the second continue the first; nothing is read.

    The last share `held_out` of one sequence is held out; of many, whole sequences from the end.
    """
    if not 0 < held_out < 1:
        raise DataError(f"held_out must be a share between 0 and 1, got {held_out!r}.")
    if sequences.n_sequences == 1:
        cut = round(sequences.length * (1 - held_out))
        if not 0 < cut < sequences.length:
            raise DataError(f"{sequences.name} is too short to hold out {held_out:.0%}; pass the test data as test=.")
        parts = np.array([0, cut, sequences.length])
        return sequences.part(parts[:2]), sequences.part(parts[1:]), True
    wanted = sequences.length * (1 - held_out)
    number = int(np.clip(np.searchsorted(sequences.offsets, wanted), 1, sequences.n_sequences - 1))
    return sequences.part(sequences.offsets[: number + 1]), sequences.part(sequences.offsets[number:]), False


def gathered(sequences: Sequences, spans: Sequence[tuple[int, int]]) -> Sequences:
    """Several stretches of rows in memory, cut where sequences end: every piece is a sequence of its own."""
    cuts, at = [0], 0
    for start, stop in spans:
        inside = sequences.offsets[(sequences.offsets > start) & (sequences.offsets < stop)]
        cuts += [at + int(each) - start for each in (*inside, stop)]
        at += stop - start
    stored = [sequences.stored(*span) for span in spans]
    found = {name: ArraySource(np.concatenate([each[name] for each in stored]), name) for name in stored[0]}
    return Sequences(found.pop("values"), np.array(cuts), **found)
