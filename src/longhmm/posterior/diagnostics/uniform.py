"""Whether ranks are uniform: their distribution function against bands that hold all its points at once (Säilynoja,
Bürkner and Vehtari 2022); and how far that of many normal quantiles is from normal."""

from functools import cache, lru_cache

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr

from longhmm.backends.tallied import Bins, numbers_in

POINTS = 20  # at which distribution functions are compared
SETS = 20_000  # of uniform ranks, which say how far off chance takes them


def normal_distances(numbers: np.ndarray, bins: Bins, counts: np.ndarray) -> np.ndarray:
    """`(D,)`, Kolmogorov's distances of numbers `(D, n)` from the standard normal distribution. Counts in bins, those
    of a `Tally`, say between what bounds they lie; only bins in which they may be attained are put in order, since
    sorting all takes many times as long."""
    in_parts, counts = counts, counts.sum(axis=1, dtype=np.int64)
    n, edges = np.maximum(counts.sum(axis=1), 1), _below_edges(bins)
    ranks = np.zeros((len(counts), bins.size + 1), np.int64)
    np.cumsum(counts, axis=1, out=ranks[:, 1:])
    above = ranks / n[:, None] - edges  # by how much what lies below each edge is more than should
    least = np.abs(above).max(axis=1)
    upper = np.maximum(above[:, :-1] + counts / n[:, None], np.diff(edges) - above[:, :-1])
    near = upper >= least[:, None]
    each = zip(numbers_in(numbers, bins, near, in_parts), near, counts, ranks, n, least, strict=True)
    return np.array([_attained(*own) for own in each])


def _attained(some: np.ndarray, near: np.ndarray, counts: np.ndarray, ranks: np.ndarray, n: int, least: float) -> float:
    """The largest distance at some numbers, all those of the bins that are near, or the least that it is elsewhere."""
    below, own = ndtr(np.sort(some)), np.flatnonzero(near)
    before = ranks[own] - np.cumsum(counts[own]) + counts[own]  # numbers in bins that are not near
    rank = np.arange(len(some)) + np.repeat(before, counts[own])
    return float(max(np.max((rank + 1) / n - below, initial=least), np.max(below - rank / n, initial=least)))


@lru_cache(maxsize=2)
def _below_edges(bins: Bins) -> np.ndarray:
    """`(bins + 1,)`, what a standard normal number is below with these probabilities: the outer bins have no ends."""
    return np.asarray(ndtr(np.r_[-np.inf, np.arange(1, bins.size) / bins.per - bins.most, np.inf]))


def points(draws: int) -> np.ndarray:
    """Ranks below which are counted, evenly spaced between the ends 0 and `draws` of what ranks can be."""
    return np.unique(np.linspace(0, draws + 1, POINTS + 2)[1:-1].round())


def uniform_p_values(below: np.ndarray, n: int, draws: int) -> np.ndarray:
    """`(...)`, the chance that counts `(..., points)` of n uniform ranks are as far off somewhere."""
    found = 1 + np.searchsorted(_by_chance(n, draws), _rarest(below, n, draws), side="right")
    return np.asarray(found / (1 + SETS))


def ecdf_band(n: int, draws: int, level: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest counts, `(points,)` each, of n uniform ranks; some point lies outside with a chance of
    `level`."""
    from scipy.stats import binom

    limit, shares = np.quantile(_by_chance(n, draws), level), points(draws) / (draws + 1)
    return np.asarray(binom.ppf(limit, n, shares)), np.asarray(binom.isf(limit, n, shares))


def _rarest(below: np.ndarray, n: int, draws: int) -> np.ndarray:
    """The smallest of the chances, point by point and in either direction, of counts as far off."""
    shares = points(draws) / (draws + 1)
    upper = np.where(below > 0, bdtrc(np.maximum(below - 1, 0), n, shares), 1.0)
    return np.asarray(np.minimum(bdtr(below, n, shares), upper).min(axis=-1))


@cache
def _by_chance(n: int, draws: int) -> np.ndarray:
    """`_rarest` of many sets of n uniform ranks, in rising order."""
    steps = np.diff(points(draws), prepend=0.0, append=draws + 1.0) / (draws + 1)
    counts = np.random.default_rng(0).multinomial(n, steps, SETS)
    return np.sort(_rarest(np.cumsum(counts, axis=1)[:, :-1], n, draws))
