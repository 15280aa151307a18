"""Residuals of the one-step predictions: independent standard normals if the model is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences, open_data
from longhmm.model.hmm import HMM
from longhmm.posterior.predictive import predictions
from longhmm.posterior.stretches import stretches

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

EDGE = 1e-12  # keeps the normal quantile finite
FAR = 4.0  # standard deviations: beyond lie the tails, 6 of 100,000 normal numbers


@dataclass(frozen=True)
class Residuals:
    """Pseudo-residuals, by feature; NaN where too few are known.

    Attributes:
        autocorrelation: `(D,)` correlation of neighbouring residuals; 0 if the model is right.
        autocorrelation_error: about `1 / sqrt(n)`.
        distance: `(D,)` Kolmogorov distance of the residuals from the standard normal distribution: by how much the
            model's probabilities of observations are off, at most.
        distance_p_value: of a distance as large, if the model is right.
        tails: `(D,)` share of residuals beyond four standard deviations.
        tails_p_value: of as many there, if the model is right.
        lowest: `(D,)` the smallest observation.
        values: `(n, D)` the residuals, NaN where missing.
    """

    autocorrelation: np.ndarray
    autocorrelation_error: np.ndarray
    distance: np.ndarray
    distance_p_value: np.ndarray
    tails: np.ndarray
    tails_p_value: np.ndarray
    lowest: np.ndarray
    values: np.ndarray


def residuals(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, *, most: int = 100_000, seed: int = 0
) -> Residuals | None:
    """Normal quantiles of `P(y_t <= observed | y_0 .. y_{t-1})`, feature by feature, at given parameters.

    Discrete observations are spread at random over the step of their distribution function. Up to `most` observations
    in stretches spread over the data are looked at. None where the emission has no distribution function.

    At parameters that are one draw of the posterior, residuals of a right model are independent standard normals
    without any correction: parameters and data then come together as they came about.
    """
    looked_at = stretches(sequences, most)
    rng = np.random.default_rng(seed)
    found, follows = [], []
    lowest = np.full(sequences.dim, np.inf)
    for part in predictions(model, params, looked_at.sequences):
        block = looked_at.sequences.rows(part.start, part.stop)
        with jax.enable_x64(True):
            arrays = {name: jnp.asarray(value) for name, value in model.validate(params).items()}
            filled = np.where(block.observed, block.values, _some_value(block.values, block.observed))
            cdfs = _cdfs(model, arrays, filled.astype(np.float64))
        if cdfs is None:
            return None
        lower, upper = (np.einsum("nk,nkd->nd", part.law, np.asarray(each)) for each in cdfs)
        uniform = lower + (upper - lower) * rng.uniform(size=lower.shape)
        lowest = np.minimum(lowest, np.where(block.observed, block.values, np.inf).min(axis=0))
        place, counts = looked_at.rows(part.start, part.stop)
        found.append(np.where(block.observed & counts[:, None], _normal_quantile(uniform), np.nan))
        follows.append(place > 0)
    return _judge(np.concatenate(found), np.concatenate(follows), lowest)


def _judge(values: np.ndarray, follows: np.ndarray, lowest: np.ndarray) -> Residuals:
    from scipy.stats import binom, kstest, norm

    none = np.full((6, values.shape[1]), np.nan)
    found = Residuals(none[0], none[1], none[2], none[3], none[4], none[5], lowest, values)
    for feature, column in enumerate(values.T):
        both = follows[1:] & np.isfinite(column[1:]) & np.isfinite(column[:-1])
        known = column[np.isfinite(column)]
        if both.sum() < 20 or known.std() == 0:
            continue
        centred = column - known.mean()
        found.autocorrelation[feature] = np.mean(centred[1:][both] * centred[:-1][both]) / known.var()
        found.autocorrelation_error[feature] = both.sum() ** -0.5
        distance, far = kstest(known, "norm"), int(np.sum(np.abs(known) > FAR))
        found.distance[feature], found.distance_p_value[feature] = distance.statistic, distance.pvalue
        found.tails[feature] = far / len(known)
        found.tails_p_value[feature] = binom.sf(far - 1, len(known), 2 * norm.sf(FAR))
    return found


def _some_value(values: np.ndarray, observed: np.ndarray) -> Any:
    """Stands in for missing values, which are left out afterwards: any that was observed will do."""
    return values[observed][0] if observed.any() else 1


@jax.jit
def _cdfs(model: HMM, params: Mapping[str, jax.Array], values: Any) -> tuple[jax.Array, jax.Array] | None:
    return model.emission.cdf(params, jnp.asarray(values))


def _normal_quantile(uniform: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    return np.asarray(ndtri(np.clip(uniform, EDGE, 1 - EDGE)))


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
