"""From when on was an error below a target, chain by chain, and how many times sooner did one method get there?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Ratios(NamedTuple):
    """How many times as long `slow` took as `fast`, chain by chain, and how sure that is.

    Attributes:
        values: one per chain that says anything; a chain of `slow` that never arrived counts with its whole run.
        at_least: chains of `slow` that never arrived: their ratios are larger than given.
        undecided: chains of `fast` that never arrived, and are left out.
    """

    values: list[float]
    at_least: int
    undecided: int


def settled(at: Sequence[float], values: Sequence[float] | np.ndarray, target: float) -> float:
    """From where on a curve stays down at a target, on the straight line between two looks; infinity if it does not.

    A lucky look below the target on the way is not yet an arrival.
    """
    heights, places = np.asarray(values, np.float64), np.asarray(at, np.float64)
    above = np.flatnonzero(~(heights <= target))
    if not above.size:  # the start is not a look, so that nothing is known of the way to the first one
        return float(places[0])
    last = int(above[-1])
    if last == len(heights) - 1:
        return float("inf")
    share = (heights[last] - target) / (heights[last] - heights[last + 1])
    return float(places[last] + share * (places[last + 1] - places[last]))


def chains_settled(at: Sequence[float], looks: Sequence[Sequence[float]], target: float) -> list[float]:
    """`settled` of every chain; `looks` are `(look, chain)`."""
    return [settled(at, chain, target) for chain in np.asarray(looks, np.float64).T]


def ratios(fast: Sequence[float], slow: Sequence[float], slow_end: float) -> Ratios:
    """Pair by pair, chains having begun at the same points; `slow_end` is where the runs of `slow` end."""
    arrived = [(one, other) for one, other in zip(fast, slow, strict=True) if np.isfinite(one)]
    values = [min(other, slow_end) / one for one, other in arrived]
    at_least = sum(not np.isfinite(other) for _, other in arrived)
    return Ratios(values, at_least, len(fast) - len(arrived))
