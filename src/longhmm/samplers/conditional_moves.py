"""Emission parameters moved given the states, for any emission: Hamiltonian steps with a Metropolis test.

Given the states the log density is an ordinary sum over rows, `sum_t log p(y_t | x_t) + log prior`, and so is its
gradient. Steps are preconditioned with the curvature of that density, and the test makes them exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.kernels.lanes import LaneBlock, Program
from longhmm.model.newton import Coordinates
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

    def __init__(self, program: Program, data: LaneBlock | None, params: Mapping[str, jax.Array]) -> None:
        self.program, self.data, self.params = program, data, params
        self.coordinates = Coordinates(program.model.emission.parameters(program.model.n_states))

    def value_and_gradient(self, vector: jax.Array, states: jax.Array) -> tuple[jax.Array, jax.Array]:
        """At coordinates `(P,)`, with states `(n_blocks, n, lanes)`; one block of rows in memory at a time."""

        def one(
            total: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], None]:
            block = self.program.block(self.data, inputs[0])
            value, slope = jax.value_and_grad(lambda at: self._rows(at, block, inputs[1]))(vector)
            return (total[0] + value, total[1] + slope), None

        prior = jax.value_and_grad(self._prior)(vector)
        return jax.lax.scan(one, prior, (jnp.arange(self.program.lanes.n_blocks), states))[0]

    def hessian(self, vector: jax.Array, states: jax.Array) -> jax.Array:
        """Second derivatives, `(P, P)`."""

        def one(total: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            block = self.program.block(self.data, inputs[0])
            return total + jax.hessian(lambda at: self._rows(at, block, inputs[1]))(vector), None

        prior = jax.hessian(self._prior)(vector)
        return jax.lax.scan(one, prior, (jnp.arange(self.program.lanes.n_blocks), states))[0]

    def _rows(self, vector: jax.Array, block: LaneBlock, states: jax.Array) -> jax.Array:
        # Known states are not asked again: they only rule out, with minus infinity, what was not drawn.
        block = block.own()._replace(states=None)
        logs = self.program.log_likelihoods({**self.params, **self.coordinates.params(vector)}, block)
        own = states[..., None] == jnp.arange(self.program.model.n_states)
        inside = jnp.arange(logs.shape[0])[:, None] < block.length
        return jnp.sum(jnp.where(own & inside[..., None], logs, 0.0))

    def _prior(self, vector: jax.Array) -> jax.Array:
        params = self.coordinates.params(vector)
        table = self.coordinates.table
        return self.program.model.emission.log_prior(params) + log_abs_det_jacobian(table, unconstrain(table, params))


def metric_at(density: ConditionalDensity, vector: jax.Array, states: jax.Array, step_size: jax.Array) -> Metric:
    """From the curvature here, every eigenvalue made positive and at least 1/9 (a standard deviation of 3)."""
    hessian = density.hessian(vector, states)
    values, vectors = jnp.linalg.eigh(-0.5 * (hessian + hessian.T))
    return Metric(vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), 1.0 / 9.0)), step_size)


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
