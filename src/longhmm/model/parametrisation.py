"""Natural parameters to unconstrained coordinates and back, with the Jacobian that a density needs.

Every function takes a table `{name: Parameter}`. The coordinates of a free parameter are NumPyro's bijection from the
real numbers to the support of its prior: a simplex of C shares has C - 1 coordinates, a D x D covariance D(D+1)/2.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from longhmm.errors import ModelError
from longhmm.model.parameter import Parameter, Params
from longhmm.model.small_covariance import bijection

Parameters = Mapping[str, Parameter]


def free_names(parameters: Parameters) -> list[str]:
    """The names that have coordinates, in the order of the table."""
    return [name for name, parameter in parameters.items() if parameter.is_free]


def coordinate_shapes(parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """The shape of every free parameter's unconstrained coordinates."""
    return {
        name: tuple(bijection(parameters[name].support).inverse_shape(parameters[name].shape))
        for name in free_names(parameters)
    }


def unconstrain(parameters: Parameters, params: Params) -> dict[str, jax.Array]:
    """Unconstrained coordinates of the free parameters; fixed ones have none."""
    return {
        name: bijection(parameters[name].support).inv(_natural(parameters[name], params))
        for name in free_names(parameters)
    }


def constrain(parameters: Parameters, u: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Natural parameters at the coordinates `u`, the fixed ones included."""
    names = free_names(parameters)
    dtype = jnp.result_type(*(u[name] for name in names)) if names else jnp.result_type(float)
    return {
        name: bijection(parameter.support)(u[name]) if parameter.is_free else _fixed(parameter, dtype)
        for name, parameter in parameters.items()
    }


def log_abs_det_jacobian(parameters: Parameters, u: Mapping[str, jax.Array]) -> jax.Array:
    """log |d params / d u|, summed over the free parameters.

    A log density of natural values becomes one of coordinates by adding this number.
    """
    total = jnp.zeros(())
    for name in free_names(parameters):
        way = bijection(parameters[name].support)
        total = total + jnp.sum(way.log_abs_det_jacobian(u[name], way(u[name])))
    return total


def _fixed(parameter: Parameter, dtype: jnp.dtype) -> jax.Array:
    assert parameter.value is not None
    return jnp.asarray(parameter.value, dtype if parameter.value.dtype.kind == "f" else None)


def _natural(parameter: Parameter, params: Params) -> jax.Array:
    if parameter.name not in params:
        raise ModelError(
            f"The parameters must contain '{parameter.name}' of shape {parameter.shape}, but the names "
            f"were {sorted(params)}."
        )
    value = jnp.asarray(params[parameter.name])
    if value.shape != parameter.shape:
        raise ModelError(
            f"The parameter '{parameter.name}' must have shape {parameter.shape}, but it had shape {value.shape}."
        )
    return value if jnp.issubdtype(value.dtype, jnp.inexact) else value.astype(float)
