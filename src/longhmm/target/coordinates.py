"""Unconstrained coordinates: which parameters have them, and the gradient in them from expected statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import Statistics
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM

Coordinates = dict[str, jax.Array]


def interior(model: HMM, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Checked parameters that have finite coordinates: no zero where the model allows a transition."""
    complete = model.validate(params)
    if model.transitions.varies:
        return complete
    zeros = (complete["transition"] <= 0) & model.transitions.allowed & model.transitions.free_rows[:, None]
    if zeros.any():
        row, column = np.argwhere(zeros)[0]
        raise ModelError(
            f"params['transition'] must be positive where the model allows a transition, got 0 from state {row} to "
            f"state {column}: give a small probability, or forbid it with a concentration of 0 in transition_prior."
        )
    return complete


def score(
    model: HMM, coordinates: Mapping[str, jax.Array], statistics: Statistics, *, initial_moves: bool = True
) -> Coordinates:
    """Gradient of the log likelihood from summed statistics: the complete-data score at the given coordinates (F8).

    `initial_moves=False` treats the initial law as a constant, for parameters that bring their own.
    """

    params, pull = natural(model, coordinates)
    return pull(natural_score(params, statistics, initial_moves=initial_moves))


def natural(
    model: HMM, coordinates: Mapping[str, jax.Array]
) -> tuple[dict[str, jax.Array], Callable[[Mapping[str, jax.Array]], Coordinates]]:
    """Natural parameters, and what turns a derivative with respect to them into one with respect to coordinates."""

    def moving(at: Coordinates) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        params = model.constrain(at)
        real = {name: value for name, value in params.items() if jnp.issubdtype(value.dtype, jnp.inexact)}
        return real, {name: value for name, value in params.items() if name not in real}  # whole numbers are constants

    real, pull, constant = jax.vjp(moving, dict(coordinates), has_aux=True)
    none = {name: jnp.zeros_like(value) for name, value in real.items()}
    return {**real, **constant}, lambda slope: pull({**none, **slope})[0]


def natural_score(
    params: Mapping[str, jax.Array], statistics: Statistics, *, initial_moves: bool = True
) -> dict[str, jax.Array]:
    """Derivative of the complete-data log likelihood with respect to natural parameters, as if these were free.

    Centred counts have the same derivative as the counts, since rows sum to one, and do not cancel.
    """
    found = {name: jnp.asarray(each, params[name].dtype) for name, each in statistics.natural.items()}
    found["transition"] = _over(statistics.centred, params["transition"])
    if initial_moves:
        found["initial"] = _over(statistics.first, params["initial"])
    return found


def _over(counts: jax.Array, law: jax.Array) -> jax.Array:
    """Counts over probabilities: the derivative of `counts * log(law)`, 0 where the law is."""
    positive = law > 0
    return jnp.where(positive, jnp.asarray(counts, law.dtype) / jnp.where(positive, law, 1.0), 0.0)


def scores(
    model: HMM, coordinates: Mapping[str, jax.Array], statistics: Statistics, *, initial_moves: bool = True
) -> Coordinates:
    """The score of every window: a leading axis W on every array."""
    return jax.vmap(lambda one: score(model, coordinates, one, initial_moves=initial_moves))(statistics)


def prior_gradient(model: HMM, coordinates: Mapping[str, jax.Array]) -> Coordinates:
    """Gradient of the log prior density of the coordinates, Jacobian included (F18)."""
    params, pull = natural(model, coordinates)
    names = {model.transitions.parameter if name == "transition" else name for name in coordinates}
    free = {name: params[name] for name in sorted(names)}
    slope = jax.grad(lambda at: model.log_prior_of_coordinates({**params, **at}))(free)
    return add(pull(slope), jax.grad(model.log_jacobian)(dict(coordinates)))


def add(*parts: Mapping[str, Any]) -> Coordinates:
    """Sum of gradients, name by name."""
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def scale(factor: Any, part: Mapping[str, Any]) -> Coordinates:
    """A gradient times a number."""
    return {name: factor * value for name, value in part.items()}
