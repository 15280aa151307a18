"""The two steps of expectation maximisation: what one pass says about better parameters, and those parameters.

The M step raises `Q = sum_ij n_ij log A[i, j] + sum_tk gamma_t(k) log p(y_t | k) + (first states) + log prior`, the
prior of *natural* parameters. Sufficient statistics of an exponential family tell Q everywhere; for any other emission,
and for rows that are missing in part, the pass yields its first and second derivatives where it stands.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.programs import quick
from longhmm.backends.read import lowering_for, partly_observed
from longhmm.backends.reference import expected_sums
from longhmm.backends.stream import Progress, Totals, totals
from longhmm.data.rows import Rows
from longhmm.model.emission_fit import Coordinates, Derivatives, ascent_direction, newton_ascent
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.target.coordinates import Arrays, constrain, lifted, unconstrain
from longhmm.target.target import Target

# A Dirichlet density with a concentration below 1 is infinite at 0; the logarithm of this number stands for that.
SMALLEST = 1e-300
# A density with corners has no second derivative to speak of; its squared slopes then say how far a step may go.
LEAST_CURVATURE = 0.5


class Slopes(NamedTuple):
    """Derivatives of Q without prior in the emission's coordinates, at the parameters of the pass."""

    gradient: Any  # `(P,)`
    hessian: Any  # `(P, P)`
    squares: Any  # `(P,)`, `sum_t gamma_t(k)` times the squared slope of log p: a curvature also where it has corners


def _emission(model: HMM) -> Coordinates:
    return Coordinates(model.emission.parameters(model.n_states))


def expect(data: Target, params: Params, *, by_sums: bool, progress: Progress | None = None) -> Totals:
    """One exact pass over the data, with `collected` what the M step needs: `Slopes`, or `by_sums` the sums of the
    emission's lowering, sufficient statistics that only some emissions have."""
    model, complete = data.model, data.model.validate(params)
    lowered = by_sums and lowering_for(model, data.sequences) is not None
    collect = None if lowered else collect_sums if by_sums else collect_slopes
    found = totals(model, complete, data.sequences, collect, progress=progress)
    return found._replace(sums=None, collected=found.sums) if lowered else found


def sums_suffice(data: Target) -> bool:
    """Whether sufficient statistics serve: the emission has them, also of what is observed in part only."""
    lowering, model, sequences = data.model.emission.lowering, data.model, data.sequences
    serves = lowering is not None and lowering.sufficient
    return serves and (lowering_for(model, sequences) is not None or not partly_observed(model, sequences))


def collect_sums(model: HMM, params: Params, rows: Rows, weights: Array) -> Array:
    lowering = model.emission.lowering
    assert lowering is not None
    rows = jax.tree.map(jnp.asarray, rows)
    numbers = lowering.rows(rows.values, rows.observed, rows.lags)
    return expected_sums(lowering.kind, lowering.width, numbers, lowering.natural(params), weights)


def collect_slopes(model: HMM, params: Params, rows: Rows, weights: Array) -> Slopes:
    coordinates = _emission(model)
    vector = coordinates.flatten(params)
    weights = weights.reshape(-1, model.n_states)  # one row for every state before, where emissions see it

    def logs(vector: Array) -> Array:
        return model.emission.log_likelihoods({**params, **coordinates.params(vector)}, rows).reshape(weights.shape)

    def weighted(vector: Array) -> Array:
        # A state that cannot have produced a row has weight 0 and log density minus infinity.
        return jnp.sum(weights * jnp.where(weights > 0, logs(vector), 0.0))

    slopes = coordinates.derivatives(weighted, vector)
    squares = coordinates.squared_slopes(logs, vector, weights, model.emission.state_levels(model.n_states))
    return Slopes(slopes.gradient, slopes.hessian, squares)


def maximise(model: HMM, params: Arrays, u: Arrays, expected: Totals, *, prior: bool, moves_initial: bool) -> Arrays:
    """Parameters with a larger Q than at coordinates `u`: the largest, or a Newton step where only slopes are known."""
    moves = model.transitions
    with jax.enable_x64(True):
        emission = _next_emission(model, params, u, expected.collected, prior)
        if not moves.dirichlet:  # no closed form: they stay
            return {moves.parameter: params[moves.parameter], **emission}
        transition = _next_transition(model, params["transition"], expected, prior, moves_initial)
        return {"transition": transition, **emission}


def between(model: HMM, old: Arrays, new: Arrays, fraction: float) -> Arrays:
    """A point on the way from old to new parameters: straight in A and in the emission's coordinates."""
    if fraction == 1.0:
        return new
    ends = [unconstrain(model, lifted(model, each, SMALLEST)) for each in (old, new)]
    at = jax.tree.map(lambda one, other: one + fraction * (other - one), *ends)
    name = model.transitions.parameter
    return {**_emission_at(model, at), name: old[name] + fraction * (new[name] - old[name])}


def _emission_at(model: HMM, u: Arrays) -> Arrays:
    """The emission's natural parameters, fixed ones included."""
    found = constrain(model, u)
    return {name: found[name] for name in model.emission.names}


def _next_transition(
    model: HMM, transition: np.ndarray, expected: Totals, prior: bool, moves_initial: bool
) -> np.ndarray:
    """Rows in proportion to `n_ij + a_ij - 1`, at least 0; fixed rows, and rows without any weight, stay."""
    rows = model.transitions
    weights = expected.transitions + (rows.concentration - 1.0 if prior else 0.0)
    weights = np.where(rows.allowed, np.maximum(weights, 0.0), 0.0)
    sums = weights.sum(axis=1, keepdims=True)
    moving = rows.free_rows[:, None] & (sums > 0)
    closed = np.where(moving, weights / np.where(sums > 0, sums, 1.0), transition)
    if not moves_initial or not rows.n_free:
        return closed
    # A stationary `initial` has a say in A, and the closed form is only where to start.
    start = np.where(rows.allowed, np.maximum(closed, 1e-30), 0.0)
    start = np.asarray(rows.unconstrain(jnp.asarray(start / start.sum(axis=1, keepdims=True))))
    arrays = jnp.asarray(weights), jnp.asarray(expected.first)
    best, _ = newton_ascent(lambda u: _transition_derivatives(model, jnp.asarray(u), *arrays), start)
    return np.asarray(rows.constrain(jnp.asarray(best)))


def _next_emission(model: HMM, params: Arrays, u: Arrays, collected: Any, prior: bool) -> Arrays:
    slopes = isinstance(collected, Slopes)
    closed = None if slopes else model.emission.mode(model.n_states, collected, params, prior=prior)
    if closed is not None:
        return closed
    coordinates = _emission(model)
    new = np.concatenate([np.zeros(0), *(np.ravel(u[name]) for name in coordinates.shapes)])
    if new.size and not slopes:
        new, _ = newton_ascent(partial(_emission_derivatives, model, prior, params, collected), new, iterations=100)
    elif new.size:
        gradient, curvature = collected.gradient, np.abs(np.diag(collected.hessian))
        hessian = collected.hessian - np.diag(np.maximum(LEAST_CURVATURE * collected.squares - curvature, 0.0))
        if prior:
            known = _emission_derivatives(model, True, None, None, new)
            gradient, hessian = gradient + np.asarray(known.gradient), hessian + np.asarray(known.hessian)
        new = new + ascent_direction(gradient, hessian)
    return _emission_at(model, {**u, **coordinates.parts(new)})


@quick
def _transition_derivatives(model: HMM, u: Array, weights: Array, first: Array) -> Derivatives:
    def objective(u: Array) -> Array:
        transition = model.transitions.constrain(u)
        logs = jnp.log(jnp.maximum(transition, SMALLEST))
        initial = jnp.maximum(model.initial_distribution(transition), SMALLEST)
        return jnp.sum(weights * logs) + jnp.sum(first * jnp.log(initial))

    return Derivatives(*jax.value_and_grad(objective)(u), jax.hessian(objective)(u))


@partial(quick, static_argnames=("prior",))
def _emission_derivatives(model: HMM, prior: bool, at: Any, sums: Any, vector: Array) -> Derivatives:
    """Of what sums over the data, taken `at` some parameters, say of Q, of the log prior, or of both."""
    coordinates, lowering = _emission(model), model.emission.lowering

    def objective(vector: Array) -> Array:
        params, value = coordinates.params(vector), jnp.zeros(())
        if sums is not None:
            assert lowering is not None
            value = lowering.expected_log_density(params, at, sums)
        return value + model.emission.log_prior(params) if prior else value

    return coordinates.derivatives(objective, vector)
