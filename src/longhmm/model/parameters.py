"""Named parameters, stacked over states: shape, prior or fixed value, region, and unconstrained coordinates.

The coordinates of a free parameter are NumPyro's bijection from the real numbers to the support of its prior: a simplex
of C shares has C - 1 coordinates, a D x D covariance D(D+1)/2. Functions of a table take `{name: Parameter}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, InverseWishart, biject_to, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.errors import ModelError
from longhmm.model.covariance import bijection, inverse_wishart_density
from longhmm.model.support import Turn

Params = Mapping[str, Any]


class Parameter(NamedTuple):
    """A parameter stacked over states.

    `prior` is None for a fixed value, and also for a default prior that still waits for the data; `value` is None for
    every free parameter. `support` is the region of a free parameter: its coordinates are `biject_to(support)`.
    """

    name: str
    shape: tuple[int, ...]
    prior: Distribution | None
    value: Any  # an array, or None
    support: Constraint | None

    @property
    def is_free(self) -> bool:
        """Whether the parameter is inferred, that is, has unconstrained coordinates."""
        return self.value is None


Parameters = Mapping[str, Parameter]


# What users give -----------------------------------------------------------------------------------------------------


class Pending(NamedTuple):
    """Stands for a default prior that the data have not scaled yet; only the region is known."""

    support: Constraint


Specification = Any  # a prior (Distribution), a fixed value (array), or Pending


def specification(name: str, given: Any) -> Specification:
    """What a user gave for a parameter: its prior, or its fixed value."""
    if isinstance(given, Pending):
        return given
    if isinstance(given, Distribution):
        # JAX arrays keep the precision of the scope that made them; NumPy arrays take that of the scope that uses them,
        # so that one prior serves float32 windows and float64 modes.
        return jax.tree.map(_to_numpy, given)
    if isinstance(given, type):
        raise ModelError(
            f"The prior of '{name}' must be a distribution such as Normal(0, 1), but it was the class {given.__name__}."
        )
    array = np.asarray(given) if not isinstance(given, str | None) else None
    if array is None or array.dtype.kind not in "iuf":
        raise ModelError(
            f"The parameter '{name}' must be a NumPyro distribution (its prior), a number or an array (a fixed value), "
            f"but it was {given!r}."
        )
    return array


def _to_numpy(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    return np.asarray(leaf, np.float64 if np.issubdtype(leaf.dtype, np.floating) else None)


def full_shape(spec: Specification) -> tuple[int, ...]:
    """The shape of one draw of a prior, or of a constant; () where only the region is known."""
    if isinstance(spec, Distribution):
        return tuple(spec.batch_shape) + tuple(spec.event_shape)
    return () if isinstance(spec, Pending) else tuple(spec.shape)


def brief(spec: Specification) -> str:
    """A prior or fixed value in a word."""
    if isinstance(spec, Pending):
        return "scaled to the data"
    if isinstance(spec, Distribution):
        return type(spec).__name__
    return f"{spec.item():g}" if spec.ndim == 0 else str(spec.tolist()) if spec.size <= 8 else f"array{spec.shape}"


def make_parameter(
    name: str, spec: Specification, n_states: int, tail: tuple[int, ...], *, integer: bool = False
) -> Parameter:
    """Stack one specification over states, or refuse a shape that does not fit (K, *tail)."""
    shape, given = (n_states, *tail), full_shape(spec)
    try:
        fits = np.broadcast_shapes(given, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        kind = "prior" if isinstance(spec, Distribution) else "fixed value"
        raise ModelError(
            f"The {kind} of '{name}' has shape {given}, which does not fit {n_states} states with values of shape "
            f"{tail}: give one for all states, or one per state with leading size {n_states}."
        )
    if isinstance(spec, Distribution):
        support = Turn(-np.pi) if spec.support is constraints.circular else spec.support
        return Parameter(name, shape, spec, None, support)
    if isinstance(spec, Pending):
        return Parameter(name, shape, None, None, spec.support)
    if isinstance(spec, jax.Array):  # inside compiled code
        return Parameter(name, shape, None, jnp.broadcast_to(spec, shape), None)
    fixed = np.broadcast_to(spec, shape).astype(np.int64 if integer else np.float64)
    return Parameter(name, shape, None, fixed, None)


# Priors --------------------------------------------------------------------------------------------------------------


def _prior_of(parameter: Parameter) -> Distribution:
    """A copy in the precision of the current scope, without what NumPyro or JAX may have cached for another one."""
    if parameter.prior is None:
        raise ModelError(
            f"The default prior of '{parameter.name}' depends on the data: resolve the model on the data first, or "
            f"give the prior of '{parameter.name}' explicitly."
        )
    floating = jnp.result_type(float)

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        return leaf.astype(floating if leaf.dtype.kind == "f" else leaf.dtype)

    return jax.tree.map(copied, parameter.prior)


def log_prior_density(parameter: Parameter, value: jax.Array) -> jax.Array:
    """Log prior density of one free parameter in natural space, summed over states and features."""
    prior = _prior_of(parameter)
    density = inverse_wishart_density(prior, value) if isinstance(prior, InverseWishart) else None
    return jnp.sum(prior.log_prob(value) if density is None else density)


def draw_prior(key: jax.Array, parameter: Parameter) -> jax.Array:
    """One draw of the prior, shape (K, *tail); a fixed parameter returns its value."""
    if parameter.value is not None:
        return jnp.asarray(parameter.value)
    prior = _prior_of(parameter)
    batch = parameter.shape[: len(parameter.shape) - prior.event_dim]
    try:
        return prior.expand(batch).sample(key)
    except NotImplementedError:
        raise ModelError(
            f"The prior of '{parameter.name}' is a {type(prior).__name__}, which cannot be drawn from: give "
            f"'{parameter.name}' a proper prior, or start from chosen values."
        ) from None


# Values --------------------------------------------------------------------------------------------------------------


def trial_value(support: Constraint, shape: tuple[int, ...], sign: float) -> np.ndarray:
    """A value inside `support`, far from its centre on both sides; two signs give two different values."""
    way = biject_to(support)
    coordinates = way.inverse_shape(shape)
    size = int(np.prod(coordinates, dtype=int))
    noise = sign * np.random.default_rng(0).uniform(0.5, 2.0, size) * np.where(np.arange(size) % 2 == 0, -1.0, 1.0)
    with jax.enable_x64(True):
        return np.asarray(way(jnp.asarray(noise.reshape(coordinates))))


def check_parameter(parameter: Parameter, given: Any) -> np.ndarray:
    """A parameter's value as an array of its full shape; fixed ones take their constant."""
    if parameter.value is not None:
        return np.asarray(parameter.value)
    if given is None:
        raise ModelError(f"params must hold '{parameter.name}', an array of shape {parameter.shape}, got none.")
    try:
        value = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"params['{parameter.name}'] must be an array of numbers, got {given!r}.") from None
    _check_shape(parameter, value)
    assert parameter.support is not None
    with jax.enable_x64(True):
        # As NumPy has it: NumPyro then checks without a program for every step.
        inside = np.isfinite(value).all() and bool(np.all(parameter.support(value)))
    if not inside:
        raise ModelError(
            f"params['{parameter.name}'] must lie in the support of its prior ({parameter.support}), got "
            f"{np.array2string(value, threshold=12, precision=4)}."
        )
    return value


def _check_shape(parameter: Parameter, value: Any) -> None:
    if value.shape != parameter.shape:
        raise ModelError(
            f"params['{parameter.name}'] must have shape {parameter.shape}, states first, got shape {value.shape}."
        )


# Coordinates -------------------------------------------------------------------------------------------------------


def free_names(parameters: Parameters) -> list[str]:
    """The names that have coordinates, in the order of the table."""
    return [name for name, parameter in parameters.items() if parameter.is_free]


def coordinate_shapes(parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """The shape of every free parameter's unconstrained coordinates."""
    free = ((name, parameters[name]) for name in free_names(parameters))
    return {name: tuple(bijection(each.support).inverse_shape(each.shape)) for name, each in free}


def unconstrain(parameters: Parameters, params: Params) -> dict[str, jax.Array]:
    """Unconstrained coordinates of the free parameters; fixed ones have none."""

    def natural(parameter: Parameter) -> jax.Array:
        if parameter.name not in params:
            raise ModelError(
                f"params must hold '{parameter.name}', an array of shape {parameter.shape}, got {sorted(params)}."
            )
        value = jnp.asarray(params[parameter.name])
        _check_shape(parameter, value)
        return value if jnp.issubdtype(value.dtype, jnp.inexact) else value.astype(float)

    free = ((name, parameters[name]) for name in free_names(parameters))
    return {name: bijection(each.support).inv(natural(each)) for name, each in free}


def constrain(parameters: Parameters, u: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Natural parameters at the coordinates `u`, the fixed ones included."""
    names = free_names(parameters)
    dtype = jnp.result_type(*(u[name] for name in names)) if names else jnp.result_type(float)
    return {
        name: bijection(parameter.support)(u[name])
        if parameter.is_free
        else jnp.asarray(parameter.value, dtype if parameter.value.dtype.kind == "f" else None)
        for name, parameter in parameters.items()
    }


def log_abs_det_jacobian(parameters: Parameters, u: Mapping[str, jax.Array]) -> jax.Array:
    """log |d params / d u|, summed over the free parameters.

    A log density of natural values becomes one of coordinates by adding this number.
    """
    ways = {name: bijection(parameters[name].support) for name in free_names(parameters)}
    logs = (jnp.sum(way.log_abs_det_jacobian(u[name], way(u[name]))) for name, way in ways.items())
    return sum(logs, jnp.zeros(()))
