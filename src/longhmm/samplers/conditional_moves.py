"""Emission parameters moved given the states, for any emission: Hamiltonian steps with a Metropolis test.

Given the states the log density is an ordinary sum over rows, `sum_t log p(y_t | x_t) + log prior`, and so is its
gradient. Steps are preconditioned with the curvature of that density, and the test makes them exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.resident import Data, Program
from longhmm.model.emission_fit import Coordinates
from longhmm.model.parameters import log_abs_det_jacobian, unconstrain

LEAPFROGS = 4
MOVES = 2  # trajectories per sweep
TARGET = 0.8  # acceptance


class Metric(NamedTuple):
    """How steps are scaled: `factor` `(P, P)` with `factor factor^T` about the conditional covariance; a step size."""

    factor: jax.Array
    step_size: jax.Array


class ConditionalDensity:
    """Log density of the emission's flat coordinates given data and states."""

    def __init__(self, program: Program, data: Data, params: Mapping[str, jax.Array]) -> None:
        self.program, self.data, self.params = program, data, params
        self.coordinates = Coordinates(program.model.emission.parameters(program.model.n_states))

    def value_and_gradient(self, vector: jax.Array, states: jax.Array) -> tuple[jax.Array, jax.Array]:
        """At coordinates `(P,)`, with states `(T,)`; one share of the rows in memory at a time."""
        return self._summed(lambda density: jax.value_and_grad(density)(vector), states)

    def hessian(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        """Second derivatives, `(P, P)`."""
        return self._summed(lambda density: jax.hessian(density)(vector), states)

    def _summed(self, find: Callable[[Callable[[jax.Array], jax.Array]], Any], states: jax.Array) -> Any:
        """What `find` makes of the prior, and of every share of the rows, added up."""

        def one(total: Any, index: jax.Array) -> tuple[Any, None]:
            found = find(lambda at: self._share(at, index, states))
            return jax.tree.map(jnp.add, total, found), None

        return jax.lax.scan(one, find(self._prior), jnp.arange(self.program.shares[1]))[0]

    def _share(self, vector: jax.Array, index: jax.Array, states: jax.Array) -> jax.Array:
        rows, origin, fresh = self.program.share(self.data, index)
        model = self.program.model
        # Known states are not asked again: they only rule out, with minus infinity, what was not drawn.
        logs = model.log_likelihoods({**self.params, **self.coordinates.params(vector)}, rows._replace(states=None))
        drawn = jax.lax.dynamic_slice_in_dim(states, origin, fresh.shape[0])
        own = (drawn[:, None] == jnp.arange(model.n_states)) & fresh[:, None]
        return jnp.sum(jnp.where(own, logs, 0.0))

    def _prior(self, vector: jax.Array) -> jax.Array:
        params = self.coordinates.params(vector)
        table = self.coordinates.table
        return self.program.model.emission.log_prior(params) + log_abs_det_jacobian(table, unconstrain(table, params))


def metric_at(density: ConditionalDensity, vector: jax.Array, states: jax.Array, step_size: jax.Array) -> Metric:
    """From the curvature here, every eigenvalue made positive and at least 1/9 (a standard deviation of 3).

    The symmetric root: eigenvectors have signs that rounding chooses.
    """
    hessian = density.hessian(vector, states)
    values, vectors = jnp.linalg.eigh(-0.5 * (hessian + hessian.T))
    return Metric((vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), 1.0 / 9.0))) @ vectors.T, step_size)


def first_step_size(size: int) -> float:
    """A step that is accepted about as often as wanted where the density is normal."""
    return float(0.9 * max(size, 1) ** -0.25)


def move(
    key: jax.Array, density: ConditionalDensity, metric: Metric, vector: jax.Array, states: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A few Hamiltonian trajectories; the new coordinates, and the mean acceptance probability."""

    def leapfrog(carry: Any, step: jax.Array) -> Any:
        at, momentum, _, slope = carry
        momentum = momentum + 0.5 * step * (metric.factor.T @ slope)
        at = at + step * (metric.factor @ momentum)
        value, slope = density.value_and_gradient(at, states)
        return at, momentum + 0.5 * step * (metric.factor.T @ slope), value, slope

    def trajectory(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        at, value, slope = carry
        momentum_key, step_key, test_key = jax.random.split(key, 3)
        momentum = jax.random.normal(momentum_key, at.shape, at.dtype)
        # A varying step keeps trajectories from closing upon themselves.
        step = metric.step_size * jax.random.uniform(step_key, (), at.dtype, 0.7, 1.3)
        start = (at, momentum, value, slope)
        there = jax.lax.fori_loop(0, LEAPFROGS, lambda _, each: leapfrog(each, step), start)
        energy = there[2] - value - 0.5 * (jnp.sum(there[1] ** 2) - jnp.sum(momentum**2))
        acceptance = jnp.where(jnp.isnan(energy), 0.0, jnp.exp(jnp.minimum(energy, 0.0)))
        accepted = jax.random.uniform(test_key, (), at.dtype) < acceptance
        kept = (there[0], there[2], there[3])
        return jax.tree.map(lambda new, old: jnp.where(accepted, new, old), kept, carry), acceptance

    start = (vector, *density.value_and_gradient(vector, states))
    (vector, _, _), acceptance = jax.lax.scan(trajectory, start, jax.random.split(key, MOVES))
    return vector, jnp.mean(acceptance)


def adapted(metric: Metric, acceptance: jax.Array, count: jax.Array) -> Metric:
    """The step size after its `count`-th adaptation (Robbins and Monro 1951); for warm-up only."""
    factor = jnp.exp((acceptance - TARGET) / jnp.sqrt(count + 1.0))
    return metric._replace(step_size=jnp.clip(metric.step_size * factor, 1e-4, np.pi / 2))
