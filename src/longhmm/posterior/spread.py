"""How far observations scatter within each decoded state, in the units of the file."""

from __future__ import annotations

import numpy as np

from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import Sequences

ROWS_AT_ONCE = 1 << 20


def spread_by_state(
    recording: Sequences, path: np.ndarray, n_states: int, preprocessing: Preprocessing | None = None
) -> np.ndarray:
    """`(K,)`, standard deviation of the first feature of the samples that were kept, by decoded state."""
    every = 1 if preprocessing is None else preprocessing.decimate
    count, total, squares = np.zeros(n_states), np.zeros(n_states), np.zeros(n_states)
    at = 0
    shift: float | None = None
    for first, last in zip(recording.offsets[:-1], recording.offsets[1:], strict=True):
        for start in range(int(first), int(last), ROWS_AT_ONCE * every):
            block = recording.read(start, min(start + ROWS_AT_ONCE * every, int(last)))
            values = block.values[::every, 0].astype(np.float64)
            seen = block.observed[::every, 0]
            states = path[at : at + len(values)]
            at += len(values)
            if shift is None and seen.any():  # keeps the digits of a small spread around a large mean
                shift = float(np.median(values[seen]))
            centred = np.where(seen, values - (shift or 0.0), 0.0)
            count += np.bincount(states, seen, minlength=n_states)
            total += np.bincount(states, centred, minlength=n_states)
            squares += np.bincount(states, centred**2, minlength=n_states)
    mean = total / np.maximum(count, 1)
    return np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean**2, 0.0))
