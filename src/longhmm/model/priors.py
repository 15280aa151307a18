"""Priors that NumPyro does not have."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, InverseGamma, Normal, constraints
from numpyro.distributions.constraints import Constraint


class OrderedNormal(Distribution):
    """The order statistics of `size` independent normal draws with one `loc` and `scale`: an increasing vector.

    Its density is size! times the product of the normal densities, on increasing vectors. Labels of mixture components
    cannot switch under it, and it favours no component.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.ordered_vector
    pytree_data_fields = ("loc", "scale")

    def __init__(self, loc: ArrayLike, scale: ArrayLike, size: int, *, validate_args: bool | None = None) -> None:
        self.loc, self.scale = loc, scale
        batch = jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(scale))
        super().__init__(batch_shape=batch, event_shape=(size,), validate_args=validate_args)

    def _normal(self) -> Normal:
        return Normal(jnp.expand_dims(jnp.asarray(self.loc), -1), jnp.expand_dims(jnp.asarray(self.scale), -1))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw and sort."""
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        return jnp.sort(
            jnp.asarray(self.loc)[..., None]
            + jnp.asarray(self.scale)[..., None] * jax.random.normal(key, shape, jnp.result_type(float)),
            -1,
        )

    def log_prob(self, value: ArrayLike) -> jax.Array:
        """Log density of an increasing vector."""
        values = self._normal().log_prob(value)
        return jnp.sum(values, -1) + gammaln(jnp.asarray(self.event_shape[0] + 1.0, values.dtype))


class RootInverseGamma(Distribution):
    """A standard deviation whose square is inverse gamma with `concentration` and `rate`.

    It is conjugate to the standard deviation of normal observations, as the inverse gamma is to their variance.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.positive
    pytree_data_fields = ("concentration", "rate")

    def __init__(self, concentration: ArrayLike, rate: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = concentration, rate
        batch = jnp.broadcast_shapes(jnp.shape(concentration), jnp.shape(rate))
        super().__init__(batch_shape=batch, validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """The root of a drawn variance."""
        return jnp.sqrt(InverseGamma(self.concentration, self.rate).sample(key, sample_shape))

    def log_prob(self, value: ArrayLike) -> jax.Array:
        """Log density of the variance times `d variance / d sd = 2 sd`, a number also where its square is none."""
        sd, shape, rate = jnp.asarray(value), jnp.asarray(self.concentration), jnp.asarray(self.rate)
        constant = shape * jnp.log(rate) - gammaln(shape) + jnp.log(2.0)
        return constant - (2.0 * shape + 1.0) * jnp.log(sd) - rate / (sd * sd)
