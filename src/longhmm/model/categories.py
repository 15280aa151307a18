"""Emissions of labels: one of C categories, or vectors of zeros and ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError
from longhmm.model.emissions import Emission
from longhmm.model.family import Family, as_float, sum_features
from longhmm.model.layout import Layout
from longhmm.model.parameter import Params, full_shape
from longhmm.model.summary import DataSummary


class Categorical(Family):
    """y | x = k is one of the categories 0, ..., C - 1 with probabilities `probs (K, C)`.

    `n_categories` may be left out: it is then taken from the prior of `probs`, or from the largest value in the data.
    Default prior: a flat Dirichlet.
    """

    builder = dist.CategoricalProbs

    def __init__(self, n_categories: int | None = None, *, probs: Any = None) -> None:
        if n_categories is None and probs is not None:
            shape = full_shape(probs) if isinstance(probs, Distribution) else np.shape(probs)
            n_categories = shape[-1] if shape else None
        if n_categories is not None and n_categories < 1:
            raise ModelError(f"n_categories must be at least 1, but it was {n_categories!r}.")
        self.n_categories = n_categories
        if n_categories is not None:
            self.support = constraints.integer_interval(0, n_categories - 1)
        super().__init__(dim=1, vector=False, regions={"probs": constraints.simplex}, probs=probs)

    def options(self) -> dict[str, Any]:
        return {"n_categories": self.n_categories}

    def tails(self) -> dict[str, tuple[int, ...]]:
        return {"probs": (self.n_categories or 2,)}

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"probs": dist.Dirichlet(np.ones(self.n_categories or 1))}

    def resolve(self, summary: DataSummary) -> Emission:
        if self.n_categories is None:
            if summary.n_categories is None:
                raise ModelError(
                    "A Categorical emission needs categories 0, 1, 2, ..., but the data hold other "
                    "numbers: recode them, or choose another emission."
                )
            return Categorical(summary.n_categories).resolve(summary)
        return super().resolve(summary)

    def _layout(self, n_states: int) -> Layout:
        if self.n_categories is None:
            raise ModelError(
                "The number of categories is not known yet: give n_categories, or resolve the model on the data first."
            )
        return super()._layout(n_states)

    def _trial_table(self) -> dict[str, Any]:
        return {} if self.n_categories is None else super()._trial_table()

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """A look-up: the row of category y in the table of log probabilities."""
        return jnp.log(jnp.asarray(params["probs"])).T[jnp.asarray(y).astype(jnp.int32)]

    def location(self, params: Params) -> jax.Array:
        """The expected category."""
        probs = jnp.asarray(params["probs"])
        return probs @ jnp.arange(probs.shape[1], dtype=probs.dtype)

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        """Indicators of the categories."""
        return jax.nn.one_hot(jnp.asarray(y).astype(jnp.int32), self.n_categories or 1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        logs = jnp.log(jnp.asarray(params["probs"]))
        return logs, jnp.zeros(logs.shape[0], logs.dtype)

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.zeros(jnp.shape(y))


class Bernoulli(Family):
    """Each of D features is 1 with probability `probs`, (K,), or (K, D) if dim > 1, independently given the state.

    Default prior: uniform.
    """

    builder = dist.BernoulliProbs
    support = constraints.boolean

    def __init__(self, dim: int = 1, *, probs: Any = None) -> None:
        super().__init__(dim=dim, vector=False, regions={"probs": constraints.unit_interval}, probs=probs)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"probs": dist.Beta(1.0, 1.0)}

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        return as_float(self.with_features(y))

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        probs = self.with_features(params["probs"])
        return jnp.log(probs) - jnp.log1p(-probs), sum_features(-jnp.log1p(-probs))

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.zeros(self.with_features(y).shape[:-1])
