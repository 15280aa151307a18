"""The exact gradient of the log posterior, from one streamed pass over all data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.gradients.coordinates import Coordinates, add, prior_gradient, score
from longhmm.kernels.blocks import Block
from longhmm.kernels.forms import slopes
from longhmm.kernels.full_pass import Progress, posterior_pass
from longhmm.kernels.fused_pass import fused_totals
from longhmm.kernels.gpu_pass import gpu_totals
from longhmm.kernels.statistics import Statistics, free_emission
from longhmm.model.hmm import HMM


def collect_emission_score(model: HMM, params: Mapping[str, jax.Array], block: Block, weights: jax.Array) -> Any:
    """Derivative of `sum gamma log p(y | k)` with respect to the emission's free natural parameters."""

    def logs(values: dict[str, jax.Array]) -> jax.Array:
        return model.log_likelihoods({**params, **values}, jnp.asarray(block.values), jnp.asarray(block.observed))

    return jax.vjp(logs, free_emission(model, params))[1](weights)[0]


def full_statistics(
    model: HMM, complete: Mapping[str, np.ndarray], sequences: Sequences, progress: Progress | None = None
) -> Statistics:
    """Expected statistics of all data at checked parameters, summed in float64."""
    fused = gpu_totals(model, complete, sequences, progress)
    if fused is None:
        fused = fused_totals(model, complete, sequences, collect_emission_score, progress=progress)
    if fused is not None:
        emission = fused.collected
        if fused.sums is not None:
            with jax.enable_x64(True):
                arrays = {name: np.asarray(value) for name, value in complete.items()}
                emission = jax.tree.map(np.asarray, _emission_slopes(model, arrays, fused.sums))
        return Statistics(fused.first, fused.transitions, emission, np.float64(fused.log_likelihood))
    totals: Statistics | None = None
    for result in posterior_pass(model, complete, sequences, collect_emission_score, progress):
        part = Statistics(result.first, result.transitions, result.collected, np.float64(result.log_likelihood))
        totals = part if totals is None else jax.tree.map(np.add, totals, part)
    assert totals is not None
    return totals


_emission_slopes = jax.jit(slopes, static_argnums=0)


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


@partial(jax.jit, static_argnames=("model", "prior", "moves"))
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
