"""Pseudo-residuals against the normal law: the points of a QQ plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.posterior.residuals import Residuals, residuals

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


@dataclass(frozen=True)
class Quantiles:
    """Points of a QQ plot of one feature.

    Attributes:
        expected: `(n,)` quantiles of the standard normal law.
        found: `(n,)` the same quantiles of the residuals; equal to `expected` if the model is right.
        lower, upper: `(n,)` where the residuals of a right model lie with probability 95 % at each point.
    """

    expected: np.ndarray
    found: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def residual_quantiles(
    posterior: Posterior, data: Any, *, feature: int = 0, points: int = 200, most: int = 100_000, seed: int = 0
) -> Quantiles | None:
    """The points of a QQ plot of the pseudo-residuals at the mode (or the posterior mean); None without a distribution
    function of the emission. See `residuals.residuals` for what they are."""
    params = posterior.mean_params() if posterior.mode is None else posterior.mode
    left = residuals(posterior.model, params, open_data(data), most=most, seed=seed)
    return None if left is None else quantiles(left, feature, points)


def quantiles(left: Residuals, feature: int = 0, points: int = 200) -> Quantiles:
    """QQ points of residuals that were computed already."""
    from scipy.special import ndtri
    from scipy.stats import beta

    values = left.values[:, feature]
    values = np.sort(values[np.isfinite(values)])
    n = len(values)
    ranks = np.unique(np.rint(np.linspace(1, n, min(points, n)))).astype(np.int64) if n else np.empty(0, np.int64)
    # More points in the tails, where a wrong emission shows first.
    tails = np.arange(1, min(10, n) + 1)
    ranks = np.unique(np.concatenate([ranks, tails, n + 1 - tails])) if n else ranks
    band = [ndtri(beta.ppf(level, ranks, n + 1 - ranks)) for level in (0.025, 0.975)]
    return Quantiles(ndtri((ranks - 0.5) / max(n, 1)), values[ranks - 1], band[0], band[1])
