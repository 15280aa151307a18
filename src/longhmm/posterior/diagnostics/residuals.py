"""Residuals of the one-step predictions: independent standard normals if the model is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.posterior.draws import in_float64
from longhmm.posterior.predict import predictions

EDGE = 1e-12  # keeps the normal quantile finite
FAR = 4.0  # standard deviations: beyond lie the tails, 6 of 100,000 normal numbers
PLACES = 10  # stretches of long data that are looked at
BURN = 100  # rows at the start of each, while the distribution of the first state is a guess


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


def excerpts(sequences: Sequences, most: int) -> tuple[Sequences, np.ndarray]:
    """All rows, or `most` of them in stretches that stand for all, each piece a sequence; and which rows count."""
    if sequences.length <= most:
        return sequences, np.ones(sequences.length, bool)
    size = max(1, most // PLACES)
    middles = (2 * np.arange(PLACES) + 1) * sequences.length // (2 * PLACES)
    starts = np.maximum(middles - size // 2, 0)
    stops = np.minimum(starts + size, sequences.length)
    found = sequences.gathered(list(zip(starts.tolist(), stops.tolist(), strict=True)))
    counts, at = np.ones(found.length, bool), 0
    for start, stop in zip(starts, stops, strict=True):
        if start not in sequences.offsets:
            counts[at : min(at + BURN, found.offsets[np.searchsorted(found.offsets, at, side="right")])] = False
        at += stop - start
    return found, counts


def residuals(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, *, most: int = 100_000, seed: int = 0
) -> Residuals | None:
    """Normal quantiles of `P(y_t <= observed | y_0 .. y_{t-1})`, feature by feature, at given parameters.

    Discrete observations are spread at random over the step of their distribution function. Up to `most` observations
    in stretches spread over the data are looked at. None where the emission has no distribution function.

    At parameters that are one draw of the posterior, residuals of a right model are independent standard normals
    without any correction: parameters and data then come together as they came about.
    """
    from scipy.special import ndtri

    part, counts = excerpts(sequences, most)
    rng = np.random.default_rng(seed)
    values, lowest = np.full((part.length, part.dim), np.nan), np.full(part.dim, np.inf)
    complete = model.validate(params)
    for predicted in predictions(model, complete, part):
        own = slice(predicted.start, predicted.stop)
        rows = part.rows(predicted.start, predicted.stop, model.lags)
        observed = rows.observed
        # Any value that was observed will do for missing ones, which are left out afterwards.
        some = rows.values[observed][0] if observed.any() else 1
        filled = np.where(observed, rows.values, some).astype(np.float64)
        cdfs = in_float64(_cdfs, model, complete, rows._replace(values=filled))
        if cdfs is None:
            return None
        lower, upper = (np.einsum("nk,nkd->nd", predicted.states, each) for each in cdfs)
        uniform = lower + (upper - lower) * rng.uniform(size=lower.shape)
        lowest = np.minimum(lowest, np.where(observed, rows.values, np.inf).min(axis=0))
        values[own] = np.where(observed & counts[own, None], ndtri(np.clip(uniform, EDGE, 1 - EDGE)), np.nan)
    follows = np.ones(part.length, bool)
    follows[part.offsets[:-1]] = False
    return _judged(values, follows, lowest)


def _judged(values: np.ndarray, follows: np.ndarray, lowest: np.ndarray) -> Residuals:
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


@jax.jit
def _cdfs(model: HMM, params: Mapping[str, jax.Array], rows: Rows) -> tuple[jax.Array, jax.Array] | None:
    return model.emission.cdf_of_rows(params, rows)


def quantiles(left: Residuals, feature: int = 0, points: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The points of a QQ plot of one feature, `(n,)` each: quantiles of the standard normal distribution, the same of
    the residuals, and `(2, n)` where those of a right model lie with probability 95 % at each point."""
    from scipy.special import ndtri
    from scipy.stats import beta

    values = left.values[:, feature]
    values = np.sort(values[np.isfinite(values)])
    n = len(values)
    tails = np.arange(1, min(10, n) + 1)  # more points where a wrong emission shows first
    spaced = np.rint(np.linspace(1, n, min(points, n))).astype(np.int64)
    ranks = np.unique(np.concatenate([spaced, tails, n + 1 - tails]))
    band = ndtri(beta.ppf([[0.025], [0.975]], ranks, n + 1 - ranks))
    return ndtri((ranks - 0.5) / max(n, 1)), values[ranks - 1], band
