"""Data cut in two, for training and for judging, without reading them."""

from __future__ import annotations

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import DataError


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
        return sequences.part(parts[:2]), sequences.part(parts[1:]), True
    wanted = sequences.length * (1 - held_out)
    number = int(np.clip(np.searchsorted(sequences.offsets, wanted), 1, sequences.n_sequences - 1))
    return sequences.part(sequences.offsets[: number + 1]), sequences.part(sequences.offsets[number:]), False
