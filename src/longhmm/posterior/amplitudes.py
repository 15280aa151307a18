"""The distribution of the observations beside what the posterior predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError, ModelError
from longhmm.inference.markov import stationary_law
from longhmm.model.hmm import HMM
from longhmm.model.summary import subsample
from longhmm.posterior.draws import Draws, central, in_float64

ROWS_AT_ONCE = 1 << 20


class Amplitudes(NamedTuple):
    """A histogram of one feature, and what the posterior predicts of it.

    Attributes:
        edges: `(B + 1,)`, ends of the bins.
        counts: `(B,)` observed values in each bin.
        outside: observed values beyond the first and the last edge.
        expected: `(B,)` predicted counts, over states and draws.
        lower, upper: `(B,)` ends of the central interval of the predicted count over draws of the parameters.
        by_state: `(K, B)` predicted counts of each state.
    """

    edges: np.ndarray
    counts: np.ndarray
    outside: int
    expected: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    by_state: np.ndarray


def amplitudes(
    posterior: Draws, data: Any, *, feature: int = 0, bins: int = 100, draws: int = 50, interval: float = 0.9
) -> Amplitudes:
    """Count observed values in bins, in one pass, and predict the counts from the posterior.

    The prediction weighs states by their share of time in the long run. Bins cover all but a thousandth of the data;
    whole numbers get bins that are whole numbers wide.
    """
    if bins < 1:
        raise ModelError(f"bins must be at least 1, got {bins!r}.")
    sequences, model = open_data(data), posterior.model
    if not 0 <= feature < sequences.dim:
        raise DataError(f"feature must lie between 0 and {sequences.dim - 1}, got {feature!r}.")
    if model.lags or model.emission.couples:
        raise ModelError(
            f"amplitudes must be those of single states, but {model.emission!r} looks at more than one row."
        )
    edges = _edges(sequences, feature, bins)
    counts, seen = _count(sequences, feature, edges)

    def expected(params: dict[str, np.ndarray]) -> np.ndarray:
        share = stationary_law(params["transition"])
        return seen * share[:, None] * bin_probabilities(model, params, edges, feature)

    by_draw = posterior.over_draws(expected, draws)
    total = by_draw.sum(axis=1)
    lower, upper = central(total, interval)
    return Amplitudes(edges, counts, int(seen - counts.sum()), total.mean(axis=0), lower, upper, by_draw.mean(axis=0))


def bin_probabilities(model: HMM, params: Mapping[str, Any], edges: np.ndarray, feature: int = 0) -> np.ndarray:
    """`(K, B)`, the probability that each state gives to each bin of one feature."""
    found = in_float64(_below, model, params, np.repeat(edges[:, None], model.dim, axis=1))
    if found is not None:
        return np.diff(found[:, :, feature], axis=0).T
    if model.dim > 1:
        raise ModelError(f"{model.emission!r} has no distribution function of single features to draw.")
    discrete = model.emission.support.is_discrete
    middle = np.ceil(edges[:-1]) if discrete else 0.5 * (edges[:-1] + edges[1:])
    density = np.exp(in_float64(_densities, model, params, middle[:, None]))
    return np.asarray(density if discrete else density * np.diff(edges)[:, None]).T


def _edges(sequences: Sequences, feature: int, bins: int) -> np.ndarray:
    values = np.asarray(subsample(sequences), np.float64)[:, feature]
    values = values[np.isfinite(values)]
    if values.size == 0:
        raise DataError(f"feature {feature} of {sequences.name} has no observed values.")
    if sequences.dtype.kind in "iu":
        low, high = np.floor(values.min()), np.ceil(values.max())
        width = max(1.0, np.ceil((high - low + 1) / bins))
        return low - 0.5 + width * np.arange(int(np.ceil((high - low + 1) / width)) + 1)
    low, high = np.quantile(values, [0.0005, 0.9995])
    margin = 0.05 * (high - low) or 0.5
    return np.linspace(low - margin, high + margin, bins + 1)


def _count(sequences: Sequences, feature: int, edges: np.ndarray) -> tuple[np.ndarray, int]:
    counts, seen = np.zeros(len(edges) - 1, np.int64), 0
    for start in range(0, sequences.length, ROWS_AT_ONCE):
        block = sequences.rows(start, min(start + ROWS_AT_ONCE, sequences.length))
        known = block.values[:, feature][block.observed[:, feature]]
        seen += len(known)
        counts += np.histogram(known, edges)[0]
    return counts, seen


@jax.jit
def _below(model: HMM, params: Mapping[str, jax.Array], values: Any) -> jax.Array | None:
    found = model.emission.cdf(params, jnp.asarray(values))
    return None if found is None else found[1]


@jax.jit
def _densities(model: HMM, params: Mapping[str, jax.Array], values: Any) -> jax.Array:
    return model.log_likelihoods(params, Rows(jnp.asarray(values), jnp.ones(values.shape, bool)))
