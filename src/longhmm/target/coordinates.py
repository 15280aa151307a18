"""Unconstrained coordinates: which parameters have them, their order in a flat vector, and gradients in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.evaluate import Statistics
from longhmm.backends.programs import here, quick
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params

Coordinates = dict[str, Array]
Arrays = dict[str, np.ndarray]
PRIOR = "log prior"  # among coordinates, which are named by identifiers


class Flat(NamedTuple):
    """The order and the shapes of coordinates in a flat vector `(P,)`: names sorted."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @staticmethod
    def like(coordinates: Params) -> Flat:
        return Flat(tuple((name, tuple(np.shape(coordinates[name]))) for name in sorted(coordinates)))

    @property
    def size(self) -> int:
        return sum(int(np.prod(shape, dtype=int)) for _, shape in self.shapes)

    def ravel(self, coordinates: Params, xp: Any = jnp, dtype: Any = None) -> Any:
        """To a vector `(..., P)`; leading axes that all coordinates share are kept."""
        own = [(xp.asarray(coordinates[name], dtype), len(shape)) for name, shape in self.shapes]
        return xp.concatenate([each.reshape((*each.shape[: each.ndim - ndim], -1)) for each, ndim in own], axis=-1)

    def ravel_numpy(self, coordinates: Params) -> np.ndarray:
        """The same on the host, in float64 whatever the scope."""
        return np.asarray(self.ravel(coordinates, np, np.float64))

    def unravel(self, vector: Any) -> dict[str, Any]:
        found, at = {}, 0
        for name, shape in self.shapes:
            size = int(np.prod(shape, dtype=int))
            found[name] = vector[..., at : at + size].reshape((*vector.shape[:-1], *shape))
            at += size
        return found


def interior(model: HMM, params: Params, *, supports: bool = True) -> Arrays:
    """Checked parameters that have finite coordinates: no zero where the model allows a transition."""
    complete = model.validate(params, supports=supports)
    if not model.transitions.dirichlet or complete["transition"].min() > 0:
        return complete
    zeros = (complete["transition"] <= 0) & model.transitions.allowed & model.transitions.free_rows[:, None]
    if zeros.any():
        row, column = np.argwhere(zeros)[0]
        raise ModelError(
            f"params['transition'] must be positive where the model allows a transition, got 0 from state {row} to "
            f"state {column}: give a small probability, or forbid it with a concentration of 0 in transition_prior."
        )
    return complete


def lifted(model: HMM, params: Params, least: float) -> Arrays:
    """Checked parameters whose transitions, where the model allows them, have a probability of `least` or more."""
    if not model.transitions.dirichlet:
        return dict(params)
    free = model.transitions.allowed & model.transitions.free_rows[:, None]
    rows: Any = np.where(free, np.maximum(params["transition"], least), params["transition"])
    return {**params, "transition": rows / rows.sum(axis=1, keepdims=True)}


def unconstrain(model: HMM, params: Params) -> Arrays:
    """Natural parameters to unconstrained coordinates, in float64; constants and `initial` have none.

    Example:
        >>> import longhmm as lh
        >>> model = lh.HMM(n_states=2, emission=lh.Poisson())
        >>> params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
        >>> lh.unconstrain(model, params)["transition"].round(3)
        array([ 1.554, -0.98 ])
    """
    found = _wide(_described, model, interior(model, params))
    return {name: value for name, value in found.items() if name != PRIOR}


def constrain(model: HMM, coordinates: Params) -> Arrays:
    """Unconstrained coordinates to natural parameters, in float64: the inverse of `unconstrain`."""
    return _wide(_constrain, model, coordinates)


def log_prior(model: HMM, params: Params, *, unconstrained: bool = True) -> float:
    """Log prior density: of the unconstrained coordinates (Jacobian included), or of the natural parameters."""
    if unconstrained or not model.is_resolved:  # which is refused
        return float(_wide(_log_prior, model, unconstrain(model, params))[PRIOR])
    return float(_wide(_described, model, model.validate(params))[PRIOR])


def _wide(function: Callable[..., Any], model: HMM, arrays: Params) -> Arrays:
    return dict(here(function, model, {name: np.asarray(value, np.float64) for name, value in arrays.items()}))


# Compiled as a whole: one operation at a time, each would be compiled by itself. Two questions share one program.
_described = quick(
    lambda model, params: model.unconstrain(params) | ({PRIOR: model.log_prior(params)} if model.is_resolved else {})
)
_constrain = quick(lambda model, coordinates: dict(model.constrain(coordinates)))
_log_prior = quick(lambda model, coordinates: {PRIOR: model.log_prior_unconstrained(coordinates)})


def natural(model: HMM, coordinates: Params) -> tuple[dict[str, Array], Callable[[Params], Coordinates]]:
    """Natural parameters, and what turns a derivative with respect to them into one with respect to coordinates."""

    def moving(at: Coordinates) -> tuple[dict[str, Array], dict[str, Array]]:
        params = model.constrain(at)
        real = {name: value for name, value in params.items() if jnp.issubdtype(value.dtype, jnp.inexact)}
        return real, {name: value for name, value in params.items() if name not in real}  # whole numbers are constants

    real, pull, constant = jax.vjp(moving, dict(coordinates), has_aux=True)
    none = {name: jnp.zeros_like(value) for name, value in real.items()}
    return {**real, **constant}, lambda slope: pull({**none, **slope})[0]


def natural_score(params: Params, statistics: Statistics, *, initial_moves: bool = True) -> dict[str, Array]:
    """Derivative of the complete-data log likelihood with respect to natural parameters, as if these were free."""
    found = {name: jnp.asarray(each, params[name].dtype) for name, each in statistics.natural.items()}
    # Centred counts have the same derivative as the counts, since rows sum to one, and do not cancel.
    found["transition"] = _over(statistics.centred, params["transition"])
    if initial_moves:
        found["initial"] = _over(statistics.first, params["initial"])
    return found


def _over(counts: Array, probabilities: Array) -> Array:
    """The derivative of `counts * log(probabilities)`, 0 where these are."""
    positive = probabilities > 0
    return jnp.where(positive, jnp.asarray(counts, probabilities.dtype) / jnp.where(positive, probabilities, 1.0), 0.0)


def score(model: HMM, coordinates: Params, statistics: Statistics, *, initial_moves: bool = True) -> Coordinates:
    """Gradient of the log likelihood from summed statistics: the complete-data score (F8). `initial_moves=False` treats
    the initial distribution as a constant, for parameters that bring their own."""
    params, pull = natural(model, coordinates)
    return pull(natural_score(params, statistics, initial_moves=initial_moves))


def scores(model: HMM, coordinates: Params, statistics: Statistics, *, initial_moves: bool = True) -> Coordinates:
    """The score of every window: a leading axis W on every array."""
    return jax.vmap(lambda one: score(model, coordinates, one, initial_moves=initial_moves))(statistics)


def prior_gradient(model: HMM, coordinates: Params) -> Coordinates:
    """Gradient of the log prior density of the coordinates, Jacobian included (F18)."""
    params, pull = natural(model, coordinates)
    names = {model.transitions.parameter if name == "transition" else name for name in coordinates}
    free = {name: params[name] for name in sorted(names)}
    slope = jax.grad(lambda at: model.log_prior_of_coordinates({**params, **at}))(free)
    return add(pull(slope), jax.grad(model.log_jacobian)(dict(coordinates)))


def add(*parts: Params) -> Coordinates:
    return {name: sum(part[name] for part in parts) for name in parts[0]}
