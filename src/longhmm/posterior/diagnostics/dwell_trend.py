"""Whether the chance to leave a level rises or falls with the time since it was entered: a score test.

Along one drawn path departures minus chances, weighted by the logarithm of age, have mean zero and a known variance V
if the model is right. Part of that variance is of the path's own making, where data leave open when states change. The
mean over M paths of the same data has variance `V - W (1 - 1 / M)`, W that between paths: what the data say, with most
of what the paths made up averaged away. It is the data's own score of a chance that goes with a power of age, as that
of negative binomial, Weibull and mixed dwell times does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from longhmm.posterior.diagnostics.dwell_times import Exits

FEWEST_PATHS = 8  # from which the variance between them is known well enough


class Trend(NamedTuple):
    """Of the chance to leave one level, against the logarithm of age."""

    p_value: float
    size: float  # relative error of chances that it makes: root of the mean square over departures, beyond chance


def trend(several: Sequence[Exits], level: int) -> Trend:
    """Along one path or several of the same data."""
    from scipy.special import stdtr

    paths = several if len(several) >= FEWEST_PATHS else several[:1]
    scores, variances, departures = np.array([score(rows, level) for rows in paths]).T
    own = scores.var(ddof=1) * (1 - 1 / len(paths)) if len(paths) > 1 else 0.0
    variance = variances.mean() - own
    if not variance > 0:
        return Trend(1.0, 0.0)
    # Welch's and Satterthwaite's degrees of freedom: the variance between a few paths is itself an estimate.
    freedom = min(variance**2 * (len(paths) - 1) / own**2, 1e9) if own > 0 else 1e9
    squared = scores.mean() ** 2 / variance
    size = np.sqrt(max(squared - 1.0, 0.0) * variances.mean() / variance / max(departures.mean(), 1.0))
    return Trend(float(2 * stdtr(freedom, -np.sqrt(squared))), float(size))


def score(rows: Exits, level: int) -> tuple[float, float, int]:
    """The score along one path, its variance, and the number of departures."""
    mine = rows.level == level
    left, chance, along = rows.left[mine], rows.chance[mine], np.log(rows.age[mine])
    # Chances are scaled to the number of departures that there were: judged is how they depend on age.
    chance = np.minimum(chance * left.sum() / max(chance.sum(), np.finfo(float).tiny), 1.0)
    variance = chance * (1.0 - chance)
    if not variance.sum() > 0:
        return 0.0, 0.0, int(left.sum())
    along = along - np.average(along, weights=variance)
    return float(np.sum(along * (left - chance))), float(np.sum(variance * along**2)), int(left.sum())
