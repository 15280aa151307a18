"""Distribution functions of observations given those before them: those of states, weighted by the predicted states.

The kernel takes them from tables, with the normal quantile, while it filters: predicted states are never written. What
no table tells is evaluated at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from longhmm.backends.evaluate import in_double
from longhmm.backends.mixed import Mixed, hand_over
from longhmm.backends.read import COPIED_ROWS
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.formula import transitions_into
from longhmm.model.hmm import HMM
from longhmm.posterior.diagnostics.cdf_tables import FAINTEST, Below, tables, weighted
from longhmm.posterior.predict import predictions

EDGE = 1e-12  # keeps the normal quantile finite
FEWEST_IN_PASS = COPIED_ROWS  # fewer are one block of predictions, whose program other checks compile, too


class Found(NamedTuple):
    """Of all rows, a row for each feature, NaN where missing."""

    quantiles: np.ndarray  # (D, n) of the normal distribution, at P(y_t <= observed | y_0 .. y_{t-1})
    given: np.ndarray  # (D, n) the same at P(y_t <= observed | x_t), with a path of states
    lowest: np.ndarray  # (D,) the smallest observation


def quantiles_of(
    model: HMM, params: Mapping[str, Any], part: Sequences, exact: Below, seed: int, path: np.ndarray | None = None
) -> Found:
    """By tables where there are any; with the states `(n,)` of all rows, if any."""
    found = mixed_cdf(model, params, part, exact, seed, path)
    return row_by_row(model, params, part, exact, seed, path) if found is None else found


def mixed_cdf(
    model: HMM, params: Mapping[str, Any], part: Sequences, exact: Below, seed: int, path: np.ndarray | None = None
) -> Found | None:
    """By tables; None where every row is better evaluated by itself."""
    if model.transitions.varies or (own := tables(model, params, part)) is None:
        return None
    values = _values(part)
    spread = None if own[0].shift else np.random.default_rng(seed).uniform(size=values.shape)
    path = None if path is None else np.ascontiguousarray(path, np.int64)
    mixed = Mixed(own, values, spread, path, FAINTEST)
    with in_double():
        if part.length < FEWEST_IN_PASS or not hand_over(model, params, part, mixed):
            for each in predictions(model, params, part):
                mixed.add(each.states, each.start)
    return _finished(mixed, exact, model.n_states)


def _values(part: Sequences) -> np.ndarray:
    """`(n, D)`, NaN where missing."""
    if part.dtype.kind == "f" and not part.has_mask:  # as they are; the pass checks them
        values = part.source.read(0, part.length)
    else:
        rows = part.rows(0, part.length)
        values = np.where(rows.observed, rows.values, np.nan)
    return np.ascontiguousarray(values, np.float32 if values.dtype == np.float32 else np.float64)


def _finished(mixed: Mixed, exact: Below, n_states: int) -> Found:
    """Evaluate what no table told."""
    quantiles, given, (at, predicted) = mixed.quantiles, mixed.given, mixed.left()
    if len(at):
        values, spread = mixed.values[at], None if mixed.spread is None else mixed.spread[at]
        known = np.isfinite(values)
        ends = exact(Rows(np.where(known, values, values[known][:1]), known))
        found = normal([weighted(predicted[:, :n_states], each) for each in ends], spread)
        quantiles[:, at] = np.where(known, found, np.nan).T
        if mixed.path is not None:
            found = normal([each[np.arange(len(at)), mixed.path[at]] for each in ends], spread)
            given[:, at] = np.where(known, found, np.nan).T
    return Found(quantiles, given if len(given) else np.broadcast_to(np.nan, quantiles.shape), mixed.lowest)


def row_by_row(
    model: HMM, params: Mapping[str, Any], part: Sequences, exact: Below, seed: int, path: np.ndarray | None
) -> Found:
    rng, lowest = np.random.default_rng(seed), np.full(part.dim, np.inf)
    values, given = np.full((2, part.length, part.dim), np.nan)
    coupled, follows = model.emission.couples, ~np.isin(np.arange(part.length), part.offsets[:-1])
    for predicted in predictions(model, params, part):
        own, rows = slice(predicted.start, predicted.stop), part.rows(predicted.start, predicted.stop, model.lags)
        observed = rows.observed
        # Any value that was observed will do for missing ones, which are left out afterwards.
        some = rows.values[observed][:1] if observed.any() else 1
        filled = (rows.values if observed.all() else np.where(observed, rows.values, some)).astype(np.float64)
        cdfs = exact(rows._replace(values=filled))
        lowest = np.minimum(lowest, [column.min() for column in np.where(observed, filled, np.inf).T])
        spread = rng.uniform(size=observed.shape) if len(cdfs) > 1 else None
        chances = predicted.states
        if coupled:  # of pairs of states; `initial` is that of the state before the first row
            matrices = transitions_into(model, params, rows.covariates)
            chances = (predicted.before[..., None] * matrices).reshape(len(observed), -1)
        values[own] = np.where(observed, normal([weighted(chances, each) for each in cdfs], spread), np.nan)
        if path is not None:
            found = normal([each[np.arange(len(observed)), path[own]] for each in cdfs], spread)
            given[own] = np.where(observed & follows[own, None] if coupled else observed, found, np.nan)
    return Found(values.T, given.T, lowest)


def normal(ends: list[np.ndarray], spread: np.ndarray | None) -> np.ndarray:
    """Normal quantiles of probabilities; discrete observations are spread at random over the steps of these."""
    below = ends[0] if spread is None else ends[0] + (ends[-1] - ends[0]) * spread
    return np.asarray(ndtri(np.clip(below, EDGE, 1 - EDGE)))
