"""Min-max envelopes: a long record reduced to the smallest and largest value of every bin, which show every spike."""

from typing import NamedTuple

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, check_whole

READ_AT_ONCE = 1 << 20  # rows


class Envelope(NamedTuple):
    """Bin `i` covers the positions from `start + i * step` to the next bin's, or to `stop` (exclusive)."""

    start: int
    stop: int
    step: int
    low: np.ndarray  # `(bins, D)` float64, the smallest observed value; NaN where nothing was observed
    high: np.ndarray  # the largest


def step_for(length: int, bins: int) -> int:
    """The smallest power of two of positions per bin that needs no more than `bins` bins."""
    return 1 << (-(-length // bins) - 1).bit_length()


def envelope(sequences: Sequences, start: int = 0, stop: int | None = None, *, bins: int = 2000) -> Envelope:
    """Smallest and largest values of `[start, stop)` in at most `bins` bins; reads blocks, never the whole."""
    stop = sequences.length if stop is None else stop
    if not 0 <= start < stop <= sequences.length:
        bounds = f"0 <= start < stop <= {sequences.length}"
        raise DataError(f"start and stop must satisfy {bounds}, got start {start} and stop {stop}.")
    check_whole("bins", bins, 1, DataError)
    step = step_for(stop - start, bins)
    parts = []
    rows = max(step, READ_AT_ONCE // step * step)
    for at in range(start, stop, rows):
        block = sequences.rows(at, min(at + rows, stop))
        values = np.where(block.observed, block.values, np.nan)
        cuts = np.arange(0, len(values), step)
        # fmin and fmax pass over NaN, and give NaN only where there is nothing else.
        parts.append((np.fmin.reduceat(values, cuts, axis=0), np.fmax.reduceat(values, cuts, axis=0)))
    low, high = (np.concatenate([part[side] for part in parts]).astype(np.float64) for side in (0, 1))
    return Envelope(start, stop, step, low, high)
