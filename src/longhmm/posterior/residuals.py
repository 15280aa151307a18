"""Residuals of the one-step predictions: independent standard normals if the model is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences, open_data
from longhmm.model.hmm import HMM
from longhmm.posterior.predictive import predictions

STRETCH = 10_000  # consecutive observations looked at in one place
BURN = 100  # at the start of each, while the first law is a guess
EDGE = 1e-12  # keeps the normal quantile finite


@dataclass(frozen=True)
class Residuals:
    """Pseudo-residuals, by feature.

    Attributes:
        autocorrelation: `(D,)` correlation of neighbouring residuals; 0 if the model is right.
        autocorrelation_error: about `1 / sqrt(n)`.
        distance: `(D,)` Kolmogorov distance of the residuals from the standard normal law.
        values: `(n, D)` the residuals, NaN where missing.
    """

    autocorrelation: np.ndarray
    autocorrelation_error: np.ndarray
    distance: np.ndarray
    values: np.ndarray


def residuals(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, *, most: int = 100_000, seed: int = 0
) -> Residuals | None:
    """Normal quantiles of `P(y_t <= observed | y_0 .. y_{t-1})`, feature by feature, at given parameters.

    Discrete observations are spread at random over the step of their distribution function. Up to `most` observations
    in stretches spread over the data are looked at. None where the emission has no distribution function.
    """
    stretches, burn = _stretches(sequences, most)
    rng = np.random.default_rng(seed)
    found, follows = [], []
    for part in predictions(model, params, stretches):
        block = stretches.read(part.start, part.stop)
        with jax.enable_x64(True):
            arrays = {name: jnp.asarray(value) for name, value in model.validate(params).items()}
            filled = np.where(block.observed, block.values, _some_value(block.values, block.observed))
            cdfs = _cdfs(model, arrays, filled.astype(np.float64))
        if cdfs is None:
            return None
        lower, upper = (np.einsum("nk,nkd->nd", part.law, np.asarray(each)) for each in cdfs)
        uniform = lower + (upper - lower) * rng.uniform(size=lower.shape)
        position = np.arange(part.start, part.stop)
        number = np.searchsorted(stretches.offsets, position, side="right") - 1
        row = position - stretches.offsets[number]
        keep = block.observed & (row >= burn[number])[:, None]
        found.append(np.where(keep, _normal_quantile(uniform), np.nan))
        follows.append(row > 0)
    return _judge(np.concatenate(found), np.concatenate(follows))


def _judge(values: np.ndarray, follows: np.ndarray) -> Residuals:
    from scipy.stats import kstest

    features = values.shape[1]
    correlation, error, distance = np.full(features, np.nan), np.full(features, np.nan), np.full(features, np.nan)
    for feature in range(features):
        column = values[:, feature]
        both = follows[1:] & np.isfinite(column[1:]) & np.isfinite(column[:-1])
        known = column[np.isfinite(column)]
        if both.sum() < 20 or known.std() == 0:
            continue
        centred = column - known.mean()
        correlation[feature] = np.mean(centred[1:][both] * centred[:-1][both]) / known.var()
        error[feature] = 1.0 / np.sqrt(both.sum())
        distance[feature] = kstest(known, "norm").statistic
    return Residuals(correlation, error, distance, values)


def _stretches(sequences: Sequences, most: int) -> tuple[Sequences, np.ndarray]:
    """Up to `most` observations, in stretches spread over the data and cut where sequences end.

    With each piece comes the number of its first observations to leave out, as the law of its first state is unknown.
    """
    if sequences.length <= most:
        return sequences, np.zeros(sequences.n_sequences, np.int64)
    count = max(1, most // STRETCH)
    pieces, masks, burn = [], [], []
    for index in range(count):
        start = max(0, int((2 * index + 1) * sequences.length // (2 * count)) - STRETCH // 2)
        stop = min(start + STRETCH, sequences.length)
        block = sequences.read(start, stop)
        inside = sequences.offsets[(sequences.offsets > start) & (sequences.offsets < stop)] - start
        pieces += np.split(np.asarray(block.values), inside)
        masks += np.split(~block.observed, inside)
        burn += [0 if start in sequences.offsets else BURN] + [0] * len(inside)
    return open_data(pieces, mask=masks), np.array(burn)


def _some_value(values: np.ndarray, observed: np.ndarray) -> Any:
    """Stands in for missing values, which are left out afterwards: any that was observed will do."""
    return values[observed][0] if observed.any() else 1


@partial(jax.jit, static_argnames=("model",))
def _cdfs(model: HMM, params: Mapping[str, jax.Array], values: Any) -> tuple[jax.Array, jax.Array] | None:
    return model.emission.cdf(params, jnp.asarray(values))


def _normal_quantile(uniform: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    return np.asarray(ndtri(np.clip(uniform, EDGE, 1 - EDGE)))
