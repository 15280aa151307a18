"""One named parameter of a model: its shape, its prior or its fixed value, and the region it lives in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, InverseWishart, biject_to, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.errors import ModelError
from longhmm.model.small_covariance import inverse_wishart_density
from longhmm.model.turn import Turn

Params = Mapping[str, Any]


class Parameter(NamedTuple):
    """A parameter stacked over states.

    `prior` is None for a fixed value, and also for a default prior that still waits for the data; `value` is None for
    every free parameter. `support` is the region of a free parameter: its coordinates are `biject_to(support)`.
    """

    name: str
    shape: tuple[int, ...]
    prior: Distribution | None
    value: np.ndarray | None
    support: Constraint | None

    @property
    def is_free(self) -> bool:
        """Whether the parameter is inferred, that is, has unconstrained coordinates."""
        return self.value is None


class Pending(NamedTuple):
    """Stands for a default prior that the data have not scaled yet; only the region is known."""

    support: Constraint


def fixed_array(value: ArrayLike) -> np.ndarray:
    """A constant as NumPy keeps it: Python numbers become float64, and integers stay integers."""
    array = np.asarray(value)
    if array.dtype == np.bool_ or array.dtype.kind not in "iuf":
        raise ModelError(f"A fixed parameter must be a number or an array of numbers, but it was {value!r}.")
    return array


def portable(prior: Distribution) -> Distribution:
    """The same prior with NumPy leaves, in double precision.

    JAX arrays keep the precision of the scope that made them; NumPy arrays take that of the scope that uses them, so
    one prior serves float32 windows and float64 modes.
    """
    return jax.tree.map(_to_numpy, prior)


def _to_numpy(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    return np.asarray(leaf, np.float64 if np.issubdtype(leaf.dtype, np.floating) else None)


def fresh(prior: Distribution) -> Distribution:
    """A copy in the precision of the current scope, without what NumPyro or JAX may have cached for another one."""
    wide = jnp.result_type(float) == np.float64
    floating = np.float64 if wide else np.float32

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        return leaf.astype(floating if leaf.dtype.kind == "f" else leaf.dtype)

    return jax.tree.map(copied, prior)


def full_shape(spec: Distribution | np.ndarray | Pending) -> tuple[int, ...]:
    """The shape of one draw of a prior, or of a constant; () where only the region is known."""
    if isinstance(spec, Distribution):
        return tuple(spec.batch_shape) + tuple(spec.event_shape)
    return () if isinstance(spec, Pending) else tuple(spec.shape)


def make_parameter(
    name: str, spec: Distribution | np.ndarray | Pending, n_states: int, tail: tuple[int, ...], *, integer: bool = False
) -> Parameter:
    """Stack one specification over states, or refuse a shape that does not fit (K, *tail)."""
    shape = (n_states, *tail)
    given = full_shape(spec)
    if not _fits(given, shape):
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
    dtype = np.int64 if integer else np.float64
    return Parameter(name, shape, None, np.broadcast_to(spec, shape).astype(dtype), None)


def _fits(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(given, shape) == shape
    except ValueError:
        return False


def log_prior_density(parameter: Parameter, value: jax.Array) -> jax.Array:
    """Log prior density of one free parameter in natural space, summed over states and features."""
    if parameter.prior is None:
        raise ModelError(
            f"The default prior of '{parameter.name}' depends on the data: resolve the model on the data first, or "
            f"give the prior of '{parameter.name}' explicitly."
        )
    prior = fresh(parameter.prior)
    density = inverse_wishart_density(prior, value) if isinstance(prior, InverseWishart) else None
    return jnp.sum(prior.log_prob(value) if density is None else density)


def draw_prior(key: jax.Array, parameter: Parameter) -> jax.Array:
    """One draw of the prior, shape (K, *tail); a fixed parameter returns its value."""
    if parameter.value is not None:
        return jnp.asarray(parameter.value)
    if parameter.prior is None:
        raise ModelError(
            f"The default prior of '{parameter.name}' depends on the data: resolve the model on the data before "
            "drawing from the prior."
        )
    prior = fresh(parameter.prior)
    batch = parameter.shape[: len(parameter.shape) - prior.event_dim]
    try:
        return prior.expand(batch).sample(key)
    except NotImplementedError:
        raise ModelError(
            f"The prior of '{parameter.name}' is a {type(prior).__name__}, which cannot be drawn from: give "
            f"'{parameter.name}' a proper prior, or start from chosen values."
        ) from None


def trial_value(support: Constraint, shape: tuple[int, ...], sign: float) -> np.ndarray:
    """A value inside `support`, far from its centre on both sides; two signs give two different values."""
    bijection = biject_to(support)
    coordinates = bijection.inverse_shape(shape)
    size = int(np.prod(coordinates, dtype=int))
    noise = sign * np.random.default_rng(0).uniform(0.5, 2.0, size) * np.where(np.arange(size) % 2 == 0, -1.0, 1.0)
    with jax.enable_x64(True):
        return np.asarray(bijection(jnp.asarray(noise.reshape(coordinates))))
