"""Newton's method on smooth functions of an emission's few parameters, in their unconstrained coordinates.

The parameters of one state do not meet those of another in a log density, so the matrix of second derivatives is made
of one block per state, and as many directional derivatives as one state has coordinates give all blocks at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.model.parameters import Parameter, Parameters, Params, constrain, coordinate_shapes, unconstrain


class Derivatives(NamedTuple):
    """Value `()`, gradient `(P,)` and second derivatives `(P, P)` of a function at one point."""

    value: jax.Array
    gradient: jax.Array
    hessian: jax.Array


class Coordinates:
    """All free parameters of a table as one vector of length `size`.

    `owner[i]` is the state to which coordinate i belongs; all are owned by state 0 where a prior couples the states.
    """

    def __init__(self, table: Parameters) -> None:
        self.table = table
        self.shapes = coordinate_shapes(table)
        self.coupled = any(_couples_states(table[name]) for name in self.shapes)
        self._sizes = [int(np.prod(shape, dtype=int)) for shape in self.shapes.values()]
        self.size, first = sum(self._sizes), 0
        owner, column = [np.zeros(0, int)], [np.zeros(0, int)]
        for size, shape in zip(self._sizes, self.shapes.values(), strict=True):
            n_states = 1 if self.coupled else shape[0]
            owner.append(np.repeat(np.arange(n_states), size // n_states))
            column.append(first + np.tile(np.arange(size // n_states), n_states))
            first += size // n_states
        self.owner, self._column = np.concatenate(owner), np.concatenate(column)
        # One direction moves a coordinate of every state at once.
        self._directions = (np.arange(first)[:, None] == self._column).astype(np.float64)

    def flatten(self, params: Params) -> jax.Array:
        """Natural parameters to one vector of coordinates."""
        u = unconstrain(self.table, params)
        return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(u[name]) for name in self.shapes)])

    def params(self, vector: jax.Array) -> dict[str, jax.Array]:
        """One vector of coordinates to natural parameters, fixed ones included."""
        parts = jnp.split(vector, np.cumsum(self._sizes)[:-1]) if self.shapes else []
        shaped = zip(self.shapes.items(), parts, strict=True)
        return constrain(self.table, {name: part.reshape(shape) for (name, shape), part in shaped})

    def derivatives(self, objective: Callable[[jax.Array], jax.Array], vector: jax.Array) -> Derivatives:
        """Value and derivatives of a sum over states of functions of their own coordinates."""
        value, gradient = jax.value_and_grad(objective)(vector)
        if self.size == 0:
            return Derivatives(value, gradient, jnp.zeros((0, 0)))
        # One direction at a time: data enter the objective, and all directions at once would need their memory too.
        columns = self._along(lambda direction: jax.jvp(jax.grad(objective), (vector,), (direction,))[1], vector)
        hessian = columns[self._column].T * (self.owner[:, None] == self.owner)
        return Derivatives(value, gradient, 0.5 * (hessian + hessian.T))

    def squared_slopes(
        self, logs: Callable[[jax.Array], jax.Array], vector: jax.Array, weights: jax.Array, owners: np.ndarray
    ) -> jax.Array:
        """`(P,)`, weighted sums of squared derivatives of `logs(vector)` `(R, K)`, whose column k depends on the
        coordinates of state `owners[k]` alone."""
        if self.size == 0:
            return vector

        def squares(direction: jax.Array) -> jax.Array:
            slope = jax.jvp(logs, (vector,), (direction,))[1]
            return jnp.sum(jnp.where(weights > 0, weights * slope**2, 0.0), axis=0)

        sums = self._along(squares, vector)[self._column]
        return jnp.sum(sums if self.coupled else sums * (self.owner[:, None] == owners), axis=1)

    def _along(self, function: Callable[[jax.Array], jax.Array], vector: jax.Array) -> jax.Array:
        return jax.lax.map(function, jnp.asarray(self._directions, vector.dtype))


def ascent_direction(gradient: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    """Newton's step with every curvature made negative: a direction in which the function rises."""
    if gradient.size == 0:
        return gradient
    if not np.all(np.isfinite(hessian)):
        return gradient / max(1.0, float(np.abs(gradient).max()))
    size = np.abs(np.diag(hessian))
    scale = 1.0 / np.sqrt(np.where(size > 0, size, max(float(size.max()), 1.0)))
    values, vectors = np.linalg.eigh(-hessian * scale[:, None] * scale)
    return scale * (vectors @ ((vectors.T @ (scale * gradient)) / np.maximum(np.abs(values), 1e-8)))


def newton_ascent(
    evaluate: Callable[[np.ndarray], Derivatives], start: np.ndarray, *, iterations: int = 50, tolerance: float = 1e-12
) -> tuple[np.ndarray, Derivatives]:
    """Where damped Newton steps end, and the derivatives there: the predicted gain is below `tolerance`, relative to
    the value."""
    point, here = start, evaluate(start)
    for _ in range(iterations):
        gradient = np.asarray(here.gradient)
        direction = ascent_direction(gradient, np.asarray(here.hessian))
        promised = float(gradient @ direction)
        if not promised > tolerance * max(1.0, abs(float(here.value))):
            break
        fraction, there = 1.0, evaluate(point + direction)
        while not there.value >= here.value + 1e-4 * fraction * promised and fraction > 1e-6:
            fraction *= 0.25
            there = evaluate(point + fraction * direction)
        if not there.value > here.value:
            break
        point, here = point + fraction * direction, there
    return point, here


def _couples_states(parameter: Parameter) -> bool:
    """Whether one event of the prior or of its support spans the states, such as values in rising order."""
    assert parameter.support is not None
    events = [parameter.support.event_dim] + ([] if parameter.prior is None else [parameter.prior.event_dim])
    return max(events) >= len(parameter.shape)
