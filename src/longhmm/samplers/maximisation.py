"""The M step of expectation maximisation: parameters that raise Q, from the statistics of one pass.

The target is the log posterior density of *natural* parameters, without a Jacobian: with flat priors it is the
likelihood, and a row of A has the closed form of a Dirichlet mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.model.conjugate import Sums
from longhmm.model.hmm import HMM
from longhmm.model.newton import Coordinates, Derivatives, ascent_direction, newton_ascent
from longhmm.samplers.expected_statistics import Expected, Slopes

# A Dirichlet density with a concentration below 1 is infinite at 0; the logarithm of this number stands for that.
SMALLEST = 1e-300
# A density with corners has no second derivative to speak of; its squared slopes then say how far a step may go.
LEAST_CURVATURE = 0.5

Arrays = dict[str, np.ndarray]


def maximise(model: HMM, params: Arrays, expected: Expected, *, prior: bool, moves_initial: bool) -> Arrays:
    """Parameters with a larger Q: the largest, or one Newton step towards it where only derivatives are known."""
    with jax.enable_x64(True):
        emission = _next_emission(model, params, expected.emission, prior)
        moves = model.transitions
        if moves.varies:  # no closed form: they are left to steps that use derivatives
            return {moves.parameter: params[moves.parameter], **emission}
        transition = next_transition(model, params["transition"], expected, prior=prior, moves_initial=moves_initial)
        return {"transition": transition, **emission}


def between(model: HMM, old: Arrays, new: Arrays, fraction: float) -> Arrays:
    """A point on the way from old to new parameters: straight in A and in the emission's coordinates."""
    if fraction == 1.0:
        return new
    with jax.enable_x64(True):
        ends = [np.asarray(_flatten(model, each)) for each in (old, new)]
        emission = _natural(model, ends[0] + fraction * (ends[1] - ends[0]))
        name = model.transitions.parameter
        moves = old[name] + fraction * (new[name] - old[name])
        return {name: moves, **jax.tree.map(np.asarray, emission)}


def log_prior(model: HMM, params: Mapping[str, np.ndarray]) -> float:
    """Log prior density of natural parameters, finite where entries of A are zero."""
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        if not model.transitions.varies:
            arrays["transition"] = jnp.maximum(arrays["transition"].astype(jnp.float64), SMALLEST)
        return float(_log_prior(model, arrays))


@jax.jit
def _log_prior(model: HMM, params: Mapping[str, jax.Array]) -> jax.Array:
    return model.log_prior(params)


# Transitions ------------------------------------------------------------------------------------------------------


def next_transition(
    model: HMM, transition: np.ndarray, expected: Expected, *, prior: bool, moves_initial: bool
) -> np.ndarray:
    """Rows in proportion to `n_ij + a_ij - 1`, at least 0; fixed rows, and rows without any weight, stay."""
    rows = model.transitions
    weights = expected.transitions + (rows.concentration - 1.0 if prior else 0.0)
    weights = np.where(rows.allowed, np.maximum(weights, 0.0), 0.0)
    totals = weights.sum(axis=1, keepdims=True)
    moving = rows.free_rows[:, None] & (totals > 0)
    new = np.where(moving, weights / np.where(totals > 0, totals, 1.0), transition)
    return _with_stationary_start(model, new, weights, expected.first) if moves_initial else new


def _with_stationary_start(model: HMM, closed: np.ndarray, weights: np.ndarray, first: np.ndarray) -> np.ndarray:
    """If `initial` is the stationary law of A it has a say in A, and the closed form is only where to start."""
    start = np.where(model.transitions.allowed, np.maximum(closed, 1e-30), 0.0)
    start = np.asarray(model.transitions.unconstrain(jnp.asarray(start / start.sum(axis=1, keepdims=True))))
    if start.size == 0:
        return closed
    arrays = jnp.asarray(weights), jnp.asarray(first)
    best, _ = newton_ascent(lambda u: _transition_derivatives(model, jnp.asarray(u), *arrays), start)
    return np.asarray(model.transitions.constrain(jnp.asarray(best)))


@jax.jit
def _transition_derivatives(model: HMM, u: jax.Array, weights: jax.Array, first: jax.Array) -> Derivatives:
    def objective(u: jax.Array) -> jax.Array:
        transition = model.transitions.constrain(u)
        logs = jnp.log(jnp.maximum(transition, SMALLEST))
        return jnp.sum(weights * logs) + jnp.sum(first * jnp.log(jnp.maximum(model.initial_law(transition), SMALLEST)))

    return Derivatives(*jax.value_and_grad(objective)(u), jax.hessian(objective)(u))


# Emission ---------------------------------------------------------------------------------------------------------


def _next_emission(model: HMM, params: Arrays, collected: Sums | Slopes, prior: bool) -> Arrays:
    if isinstance(collected, Sums):
        closed = model.emission.mode(model.n_states, collected, start=params, prior=prior)
        if closed is not None:
            return closed
    start = np.asarray(_flatten(model, params))
    if start.size == 0:
        new = start
    elif isinstance(collected, Sums):
        new, _ = newton_ascent(
            lambda u: _sums_derivatives(model, prior, jnp.asarray(u), collected), start, iterations=100
        )
    else:
        gradient, curvature = collected.gradient, np.abs(np.diag(collected.hessian))
        hessian = collected.hessian - np.diag(np.maximum(LEAST_CURVATURE * collected.squares - curvature, 0.0))
        if prior:
            known = _prior_derivatives(model, jnp.asarray(start))
            gradient, hessian = gradient + np.asarray(known.gradient), hessian + np.asarray(known.hessian)
        new = start + ascent_direction(gradient, hessian)
    return jax.tree.map(np.asarray, _natural(model, new))


@jax.jit
def _flatten(model: HMM, params: Mapping[str, jax.Array]) -> jax.Array:
    return Coordinates(model.emission.parameters(model.n_states)).flatten(params)


@jax.jit
def _natural(model: HMM, vector: jax.Array) -> dict[str, jax.Array]:
    return Coordinates(model.emission.parameters(model.n_states)).params(vector)


@partial(jax.jit, static_argnames=("prior",))
def _sums_derivatives(model: HMM, prior: bool, vector: jax.Array, sums: Sums) -> Derivatives:
    coordinates = Coordinates(model.emission.parameters(model.n_states))

    def objective(vector: jax.Array) -> jax.Array:
        params = coordinates.params(vector)
        natural = model.emission.natural_parameters(model.emission.recentred(params, sums.centre))
        assert natural is not None
        eta, log_normaliser = natural
        value = jnp.sum(sums.statistics * eta) - jnp.sum(sums.counts * log_normaliser)
        return value + model.emission.log_prior(params) if prior else value

    return coordinates.derivatives(objective, vector)


@jax.jit
def _prior_derivatives(model: HMM, vector: jax.Array) -> Derivatives:
    coordinates = Coordinates(model.emission.parameters(model.n_states))
    return coordinates.derivatives(lambda u: model.emission.log_prior(coordinates.params(u)), vector)
