"""The exact gradient of the log posterior, from one streamed pass over all data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import Statistics
from longhmm.backends.stream import Progress, totals
from longhmm.data.sequences import Sequences, open_data
from longhmm.inference.markov import excess
from longhmm.model.hmm import HMM
from longhmm.target.coordinates import Coordinates, add, interior, prior_gradient, score, unconstrain

if TYPE_CHECKING:
    from longhmm.target.target import Estimator


def gradient(
    model: HMM,
    params: Mapping[str, Any],
    data: Any,
    *,
    prior: bool = True,
    estimator: Estimator | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Gradient of the log posterior (or of the log likelihood) in unconstrained coordinates.

    Args:
        model: the hidden Markov model.
        params: natural parameters at which the gradient is taken.
        data: an array, a path, a list of these, or what `open_data` returned.
        prior: False leaves the prior and its Jacobian out.
        estimator: None for the exact gradient in double precision, or a policy such as `Buffered(...)` for an estimate
            from one random minibatch.
        seed: chooses the minibatch.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> slope = lh.gradient(model, params, [0, 1, 9, 7], prior=False)
        >>> sorted(slope), slope["transition"].shape
        (['rate', 'transition'], (2,))
    """
    sequences = open_data(data)
    model = model.resolve(sequences)
    complete = interior(model, params)
    if estimator is None:
        return gradient_from(model, complete, full_statistics(model, complete, sequences), prior=prior)[1]
    target = estimator.bind(model, sequences, complete)
    u = jax.tree.map(jnp.asarray, unconstrain(model, complete))
    found = target.estimate(u, target.minibatch(jax.random.key(seed)))
    return {name: np.asarray(value) for name, value in (found.gradient if prior else found.likelihood).items()}


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
