"""Unconstrained coordinates: which parameters have them, and the gradient in them from expected statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError
from longhmm.kernels.statistics import Statistics
from longhmm.messages.markov import excess
from longhmm.messages.scaling import safe_log
from longhmm.model.hmm import HMM

Coordinates = dict[str, jax.Array]


def interior(model: HMM, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Checked parameters that have finite coordinates: no zero where the model allows a transition."""
    complete = model.validate(params)
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

    # The excess has the same derivative as the counts, since rows sum to one, and does not cancel.
    surplus = excess(statistics.transitions, model.constrain(dict(coordinates))["transition"])

    def complete_data(at: Mapping[str, jax.Array]) -> jax.Array:
        params = model.constrain(at)
        total = jnp.sum(surplus * safe_log(params["transition"]))
        if initial_moves:
            total = total + jnp.sum(statistics.first * safe_log(params["initial"]))
        return total + sum(jnp.sum(slope * params[name]) for name, slope in statistics.emission.items())

    return jax.grad(complete_data)(dict(coordinates))


def scores(
    model: HMM, coordinates: Mapping[str, jax.Array], statistics: Statistics, *, initial_moves: bool = True
) -> Coordinates:
    """The score of every window: a leading axis W on every array."""
    return jax.vmap(lambda one: score(model, coordinates, one, initial_moves=initial_moves))(statistics)


def prior_gradient(model: HMM, coordinates: Mapping[str, jax.Array]) -> Coordinates:
    """Gradient of the log prior density of the coordinates, Jacobian included (F18)."""
    return jax.grad(model.log_prior_unconstrained)(dict(coordinates))


def add(*parts: Mapping[str, Any]) -> Coordinates:
    """Sum of gradients, name by name."""
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def scale(factor: Any, part: Mapping[str, Any]) -> Coordinates:
    """A gradient times a number."""
    return {name: factor * value for name, value in part.items()}
