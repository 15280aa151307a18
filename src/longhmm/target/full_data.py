"""The exact gradient of the log posterior, from one streamed pass over all data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import Statistics
from longhmm.backends.stream import Progress, totals
from longhmm.data.sequences import Sequences
from longhmm.inference.markov import excess
from longhmm.model.hmm import HMM
from longhmm.target.coordinates import Coordinates, add, prior_gradient, score


def full_statistics(
    model: HMM, complete: Mapping[str, np.ndarray], sequences: Sequences, progress: Progress | None = None
) -> Statistics:
    """Expected statistics of all data at checked parameters, summed in float64."""
    found = totals(model, complete, sequences, progress=progress)
    natural = found.natural
    with jax.enable_x64(True):
        arrays = {name: np.asarray(value) for name, value in complete.items()}
        if found.sums is not None:
            natural = jax.tree.map(np.asarray, _gradient(model, arrays, found.sums))
        centred = np.zeros_like(found.transitions)
        if not model.transitions.varies:
            centred = np.asarray(excess(jnp.asarray(found.transitions), jnp.asarray(arrays["transition"])))
    return Statistics(np.float64(found.log_likelihood), found.first, found.transitions, centred, natural)


@jax.jit
def _gradient(model: HMM, params: Mapping[str, jax.Array], sums: jax.Array) -> dict[str, jax.Array]:
    lowering = model.emission.lowering
    assert lowering is not None
    return lowering.gradient(params, sums)


def log_posterior_and_gradient(
    model: HMM,
    params: Mapping[str, Any],
    sequences: Sequences,
    *,
    prior: bool = True,
    progress: Progress | None = None,
) -> tuple[float, dict[str, np.ndarray]]:
    """Log posterior density of the unconstrained coordinates (up to the evidence) and its gradient, in float64.

    With `prior=False`, the log likelihood and its gradient.
    """
    complete = model.validate(params)
    return gradient_from(model, complete, full_statistics(model, complete, sequences, progress), prior=prior)


def gradient_from(
    model: HMM, complete: Mapping[str, np.ndarray], statistics: Statistics, *, prior: bool = True
) -> tuple[float, dict[str, np.ndarray]]:
    """`log_posterior_and_gradient` at checked parameters, from the statistics of all data there."""
    with jax.enable_x64(True):
        arrays = {name: np.asarray(value) for name, value in complete.items()}
        moves = model.given_initial(complete) is None
        value, gradient = _finish(model, prior, moves, arrays, statistics)
        return float(value), jax.tree.map(np.asarray, gradient)


@partial(jax.jit, static_argnames=("prior", "moves"))
def _finish(
    model: HMM, prior: bool, moves: bool, params: Mapping[str, jax.Array], statistics: Statistics
) -> tuple[jax.Array, Coordinates]:
    coordinates = model.unconstrain(params)
    gradient = score(model, coordinates, statistics, initial_moves=moves)
    value = statistics.log_likelihood
    if prior:
        gradient = add(gradient, prior_gradient(model, coordinates))
        value = value + model.log_prior_unconstrained(coordinates)
    return value, gradient
