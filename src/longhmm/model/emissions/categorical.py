"""Categorical emissions: labels without order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError
from longhmm.model.conjugate import OneParameter, dirichlet_prior, draw_dirichlet
from longhmm.model.emissions.base import Emission
from longhmm.model.emissions.family import Family
from longhmm.model.lowering import TABLE, Lowering
from longhmm.model.parameters import Params, full_shape
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary, Sample, Suit

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences

MOST_CATEGORIES = 64  # of data that are taken for labels without being asked to
ROWS_AT_ONCE = 1 << 20


@EMISSIONS.register("categorical")
class Categorical(OneParameter, Family):
    """y | x = k is one of the categories 0, ..., C - 1 with probabilities `probs (K, C)`.

    `n_categories` may be left out: it is then taken from the prior of `probs`, or from the largest value in the data.
    Default prior: a flat Dirichlet.
    """

    builder, regions = dist.CategoricalProbs, {"probs": constraints.simplex}
    conjugate_prior = staticmethod(dirichlet_prior)

    def __init__(self, n_categories: int | None = None, *, probs: Any = None) -> None:
        if n_categories is None and probs is not None:
            shape = full_shape(probs) if isinstance(probs, Distribution) else np.shape(probs)
            n_categories = shape[-1] if shape else None
        if n_categories is not None and n_categories < 1:
            raise ModelError(f"n_categories must be at least 1, but it was {n_categories!r}.")
        self.n_categories = n_categories
        if n_categories is not None:
            self.support = constraints.integer_interval(0, n_categories - 1)
        super().__init__(probs=probs)

    @classmethod
    def from_data(cls, data: Sequences, **priors: Any) -> Emission:
        """One category more than the largest value: a rare one may be missing from any sample of the data."""
        given = super().from_data(data, **priors)
        if priors:
            return given
        largest = 0
        for start in range(0, data.length, ROWS_AT_ONCE):
            block = data.rows(start, min(start + ROWS_AT_ONCE, data.length))
            largest = int(block.values[block.observed].max(initial=largest))
        return cls(largest + 1)

    @classmethod
    def suits(cls, sample: Sample) -> Suit | None:
        if not sample.whole or sample.known.min() < 0 or sample.known.max() >= MOST_CATEGORIES or sample.dim > 1:
            return None
        if not sample.varies_less_than_counts:
            return None
        return Suit(2, "the values are few whole numbers that vary less than counts would, like labels")

    def options(self) -> dict[str, Any]:
        return {"n_categories": self.n_categories}

    def tails(self) -> dict[str, tuple[int, ...]]:
        return {"probs": (self.n_categories or 2,)}

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        return ("state", "category")

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"probs": dist.Dirichlet(np.ones(self.n_categories or 1))}

    def resolve(self, summary: DataSummary) -> Emission:
        if self.n_categories is not None:
            return super().resolve(summary)
        if summary.n_categories is None:
            raise ModelError(
                "A Categorical emission needs categories 0, 1, 2, ..., but the data hold other "
                "numbers: recode them, or choose another emission."
            )
        return Categorical(summary.n_categories).resolve(summary)

    def _tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
        if self.n_categories is None:
            raise ModelError(
                "The number of categories is not known yet: give n_categories, or resolve the model on the data first."
            )
        return self.tails()

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """A look-up: the row of category y in the table of log probabilities."""
        return jnp.log(jnp.asarray(params["probs"])).T[jnp.asarray(y).astype(jnp.int32)]

    def means(self, params: Params) -> jax.Array:
        """The expected category."""
        probs = jnp.asarray(params["probs"])
        return (probs @ jnp.arange(probs.shape[1], dtype=probs.dtype))[:, None]

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        """Indicators of the categories."""
        return jax.nn.one_hot(jnp.asarray(y).astype(jnp.int32), self.n_categories or 1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        logs = jnp.log(jnp.asarray(params["probs"]))
        return logs, jnp.zeros(logs.shape[0], logs.dtype)

    @property
    def lowering(self) -> TableLowering:
        return TableLowering(self, self.n_categories or 1)

    # -- Dirichlet probabilities ---------------------------------------------------------------------------------------

    def statistics(self, params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> jax.Array:
        labels = jnp.where(observed[:, 0], values[:, 0], 0).astype(jnp.int32)
        return (weights * observed).T @ jax.nn.one_hot(labels, self.n_categories or 1, dtype=weights.dtype)

    def pretended(self, mean: jax.Array, count: jax.Array) -> jax.Array:
        return count[:, None] * mean

    def updated(self, prior: Any, sums: jax.Array) -> Any:
        return prior + sums

    def expected(self, q: jax.Array, values: jax.Array, observed: jax.Array) -> jax.Array:
        logs = digamma(q) - digamma(jnp.sum(q, axis=1, keepdims=True))
        labels = jnp.where(observed[:, 0], values[:, 0], 0).astype(jnp.int32)
        return jnp.where(observed, logs.T[labels], 0.0)

    def mean_of(self, q: jax.Array) -> jax.Array:
        return q / jnp.sum(q, axis=1, keepdims=True)

    def draw_from(self, key: jax.Array, q: jax.Array) -> jax.Array:
        return draw_dirichlet(key, q)


class TableLowering(Lowering):
    """A log probability for each of C categories: natural parameters and sums `(C,)`."""

    kind = TABLE

    def __init__(self, emission: Emission, n_categories: int) -> None:
        super().__init__(emission, 1, n_categories, n_categories)

    def natural(self, params: Params) -> jax.Array:
        # The logarithm of 0 is what it should be: minus infinity, an impossible category.
        return jnp.log(jnp.asarray(params["probs"]))

    def expected_statistics(self, params: Any, sums: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums, sums.sum(axis=1)
