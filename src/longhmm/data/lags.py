"""Rows before each row of its sequence, the nearest first: `(..., p, D)` float64, NaN where missing, or where there are
none and no `context` (rows before the first, the nearest first) goes before the data."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def rows_before(
    seen: np.ndarray, start: int, stop: int, lags: int, offsets: np.ndarray, context: np.ndarray | None
) -> np.ndarray:
    """Of rows `[start, stop)`, out of those `seen` from `lags` rows before them on, or from the first."""
    if start < lags:
        first = np.full((lags, seen.shape[1]), np.nan) if context is None else context
        seen = np.concatenate([first[: lags - start][::-1], seen])
    near = sliding_window_view(seen.astype(np.float64, copy=False), lags, axis=0)[: stop - start]
    found = np.swapaxes(near, 1, 2)[:, ::-1]  # no copy
    begins = offsets[slice(*np.searchsorted(offsets, [max(1, start - lags + 1), stop]))]
    if not len(begins):
        return found
    found = found.copy()
    for after in range(lags):  # rows `after` others of their sequence have no more than these before them
        rows = begins + after
        found[rows[(rows >= start) & (rows < stop)] - start, after:] = np.nan
    return found


def rows_before_any(sequences: Any, positions: np.ndarray, lags: int) -> np.ndarray:
    """Of the rows at any positions."""
    back = positions[..., None] - np.arange(1, lags + 1)
    begin = sequences.offsets[np.searchsorted(sequences.offsets, positions, side="right") - 1][..., None]
    there = back >= begin
    seen = sequences.take(np.where(there, back, positions[..., None]))
    found: np.ndarray = np.where(there[..., None] & seen.observed, seen.values, np.nan).astype(np.float64)
    if sequences.context is not None:
        outside = ~there & (begin == 0)
        found[outside] = sequences.context[-1 - back[outside]]
    return found
