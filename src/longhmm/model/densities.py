"""Student's t and mixtures of Gaussians in the representation of the C++ kernel, which no sums are sufficient for; and
the normal distribution function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from longhmm.model.covariance import LOG_2PI
from longhmm.model.lowering import MOST_PARTS, Lowering, Params

if TYPE_CHECKING:
    from longhmm.model.emissions import Emission

STUDENT, MIXTURE = 5, 6  # see call.h


def ndtr(z: jax.Array) -> jax.Array:
    """The standard normal distribution function, by one erfc: JAX's takes more of them, eight times as long."""
    return 0.5 * jax.lax.erfc(-(0.5**0.5) * z)


class DensityLowering(Lowering):
    """Natural parameters are given for each feature, or component, along the last axis; sums are derivatives by
    them."""

    rows_are_values, sufficient = True, False

    def __init__(self, emission: Emission, kind: int, size: int, parameters: Callable[[Params], Any]) -> None:
        super().__init__(emission, emission.dim, size, size)
        self.kind, self.parameters, self.partial_rows = kind, parameters, emission.dim <= MOST_PARTS

    def natural(self, params: Params) -> jax.Array:
        found = jnp.stack(self.parameters(params), axis=-1)
        return found.reshape(found.shape[0], self.pack)


def student(emission: Any, log_normaliser: Callable[[jax.Array], jax.Array], params: Params) -> tuple[jax.Array, ...]:
    """Of each feature: c, the mean, a and h of `c - h log(1 + a (y - mean)^2)`."""
    df, loc, scale = (emission.with_features(params[name]) for name in ("df", "loc", "scale"))
    return log_normaliser(df) - jnp.log(scale), loc, 1.0 / (df * scale**2), 0.5 * (df + 1.0)


def mixture(params: Params) -> tuple[jax.Array, ...]:
    """Of each component: the log density at its mean with its weight, the mean, and the inverse scale."""
    inverse_scale = 1.0 / jnp.asarray(params["scales"])
    offset = jnp.log(jnp.asarray(params["weights"])) + jnp.log(inverse_scale) - 0.5 * LOG_2PI
    return offset, jnp.asarray(params["means"]), inverse_scale
