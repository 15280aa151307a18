"""Whether ranks are uniform: their distribution function against bands that hold all its points at once (Säilynoja,
Bürkner and Vehtari 2022); and how far that of many numbers is from uniform."""

from functools import cache

import numpy as np
from scipy.special import bdtr, bdtrc

POINTS = 20  # at which distribution functions are compared
SETS = 20_000  # of uniform ranks, which say how far off chance takes them
IN_BIN = 8  # numbers in a bin, on average


def uniform_distance(values: np.ndarray) -> float:
    """Kolmogorov's distance of numbers `(n,)` between 0 and 1 from the uniform distribution. Counts in bins say between
    what bounds it lies; only bins in which it may be attained are put in order, since sorting all takes ten times as
    long."""
    n = len(values)
    size = n // IN_BIN + 1
    which = np.minimum((values * size).astype(np.int64), size - 1)
    counts, edges = np.bincount(which, minlength=size), np.arange(size + 1) / size
    ends = np.cumsum(counts)
    begins = ends - counts
    least = max(np.max(ends / n - edges[1:]), np.max(edges[:-1] - begins / n))
    near = np.maximum(ends / n - edges[:-1], edges[1:] - begins / n) >= least
    some = np.sort(values[near[which]])
    own = np.repeat(np.flatnonzero(near), counts[near])
    rank = np.arange(len(some)) + (begins - np.cumsum(np.where(near, counts, 0)) + counts)[own]
    return float(max(np.max((rank + 1) / n - some, initial=least), np.max(some - rank / n, initial=least)))


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
