"""A small, fixed look at long data: what default priors and starting points are scaled by."""

from __future__ import annotations

import numpy as np

from longhmm.data.sequences import Sequences

# Fixed, so that default priors are the same whoever asks.
PIECES, PIECE_LENGTH, SEED = 64, 512, 0


def subsample(sequences: Sequences) -> np.ndarray:
    """Rows from a few dozen stretches spread over the data, NaN where missing; the same rows every time."""
    return np.concatenate([values for values in subsample_stretches(sequences)])


def subsample_stretches(
    sequences: Sequences,
    pieces: int = PIECES,
    piece_length: int = PIECE_LENGTH,
    seed: int = SEED,
) -> list[np.ndarray]:
    """Stretches of consecutive rows, float64 with NaN where missing, none crossing the end of a sequence."""
    if sequences.length <= pieces * piece_length:
        starts = np.arange(0, sequences.length, piece_length)
    else:
        # One start in each of `pieces` equal shares: spread out, and jittered so that no period is aliased.
        share = sequences.length / pieces
        jitter = np.random.default_rng(seed).random(pieces)
        starts = np.floor((np.arange(pieces) + jitter) * share).astype(np.int64)
        starts = np.minimum(starts, sequences.length - piece_length)
    stretches = []
    spans = [(start, min(start + piece_length, sequences.length)) for start in starts.tolist()]
    for (start, stop), block in zip(spans, sequences.read_many(spans), strict=True):
        values = np.where(block.observed, block.values.astype(np.float64), np.nan)
        inside = sequences.offsets[(sequences.offsets > start) & (sequences.offsets < stop)] - start
        stretches.extend(np.split(values, inside.astype(int)))
    return stretches
