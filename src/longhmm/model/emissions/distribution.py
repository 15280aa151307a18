"""The density, draws, means and distribution functions that a NumPyro distribution gives an emission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, Independent, MultivariateNormal, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.model import builders
from longhmm.model.builders import Builder
from longhmm.model.covariance import marginal_log_density
from longhmm.model.parameters import Params, make_parameter
from longhmm.model.support import feasible, settle
from longhmm.model.tree import Tree

_INTEGER_INTERVAL = type(constraints.integer_interval(0, 1))


@dataclass(frozen=True)
class Density(Tree):
    """A distribution of D features for every state.

    Attributes:
        builder: a NumPyro class, or a function of named parameters that returns a distribution.
        names: the parameters, and `integers`: those that must be integers.
        dim: number of features D.
        vector: whether the distribution itself is multivariate; else its features are independent.
        support: of the observations; with a leading axis of states in its bounds where `by_state`.
    """

    builder: Builder
    names: tuple[str, ...]
    integers: tuple[str, ...]
    dim: int
    vector: bool
    support: Constraint
    by_state: bool = False

    @staticmethod
    def find(builder: Builder, specs: dict[str, Any], dim: int) -> Density:
        """Check what a user gave, and find out what the distribution makes of it."""
        builders.check_names(builder, specs)
        n_states, layout = builders.guess_layout(builder, specs, dim)
        integers = builders.integers(builder, specs)
        table = {
            name: make_parameter(name, spec, n_states, layout.tails[name], integer=name in integers)
            for name, spec in specs.items()
        }
        support = builders.check_distribution(builder, table)
        batch_dims = 2 if dim > 1 and not layout.vector else 1
        return Density(builder, tuple(specs), integers, dim, layout.vector, *settle(support, n_states, batch_dims))

    def build(self, params: Params) -> Distribution:
        """The distribution at these parameters."""
        return builders.build(self.builder, {name: params[name] for name in self.names}, self.integers)

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """log p(y | x = k), shape (..., K), for y of shape (..., D), or (...,) where D is 1 and not `vector`."""
        values = self.features(params, y)
        return jnp.sum(values, -1) if self.dim > 1 and not self.vector else values

    def features(self, params: Params, y: jax.Array) -> jax.Array:
        """Log densities with a state axis, and with a features axis after it where features are independent."""
        distribution, y = self.build(params), jnp.asarray(y)
        values = y[..., None, :] if self.vector or self.dim > 1 else y[..., None]
        if isinstance(self.support, _INTEGER_INTERVAL):
            values = values.astype(jnp.int32)  # categories index a table, and missing ones are filled by now
        elif not jnp.issubdtype(values.dtype, jnp.inexact):
            values = values.astype(jnp.result_type(*(params[name] for name in self.names), jnp.float32))
        if not self.by_state:
            return distribution.log_prob(values)
        # A value that only other states can produce must not reach this state's density: its gradient may be NaN.
        inside = self.support(values)
        bounds = np.broadcast_shapes(*(np.shape(bound) for bound in jax.tree.leaves(self.support)))
        safe = feasible(self.support, (*bounds, self.dim) if self.vector else bounds).astype(values.dtype)
        logs = distribution.log_prob(jnp.where(inside[..., None] if self.vector else inside, values, safe))
        return jnp.where(inside, logs, -jnp.inf)

    def partly_observed(self, params: Params, filled: jax.Array, observed: jax.Array) -> jax.Array | None:
        """log p(observed part of y | x = k) of several features; None where parts cannot be integrated out.

        `filled` is y with a value inside the support where it is missing.
        """
        if not self.vector:
            return jnp.sum(jnp.where(observed[..., None, :], self.features(params, filled), 0), -1)
        distribution = self.build(params)
        if isinstance(distribution, Independent) and distribution.base_dist.event_dim == 0:
            values = distribution.base_dist.log_prob(filled[..., None, :])
            return jnp.sum(jnp.where(observed[..., None, :], values, 0), -1)
        if isinstance(distribution, MultivariateNormal):
            return marginal_log_density(distribution.loc, distribution.covariance_matrix, filled, observed)
        return None

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        """Observations (n, D) given states (n,)."""
        draws = self.build({name: jnp.asarray(params[name])[states] for name in self.names}).sample(key)
        return draws if draws.ndim == 2 else draws[:, None]

    def means(self, params: Params) -> jax.Array | None:
        """`(K, D)`, not finite where a mean does not exist; None where NumPyro does not know it."""
        try:
            mean = self.build(params).mean
        except (NotImplementedError, AttributeError):
            return None
        return mean.reshape(mean.shape[0], -1)

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        """See `Emission.cdf`; where features are independent and NumPyro has the function."""
        if self.vector:
            return None
        at = values[:, None, :] if self.dim > 1 else values
        try:
            distribution = self.build(params)
            upper = distribution.cdf(at)
        except (NotImplementedError, AttributeError, ImportError, TypeError):
            return None
        lower = upper - jnp.exp(distribution.log_prob(at)) if self.support.is_discrete else upper
        shape = (values.shape[0], -1, self.dim)
        return lower.reshape(shape), upper.reshape(shape)
