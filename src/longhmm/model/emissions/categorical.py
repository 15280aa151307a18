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
from longhmm.model import conjugate
from longhmm.model.conjugate import Approximation, Conditional
from longhmm.model.emissions.base import Emission
from longhmm.model.emissions.family import Family
from longhmm.model.lowering import TableLowering
from longhmm.model.parameters import Params, full_shape
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary, Sample, Suit

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences

MOST_CATEGORIES = 64  # of data that are taken for labels without being asked to
ROWS_AT_ONCE = 1 << 20


@EMISSIONS.register("categorical")
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
        super().__init__(dim=1, regions={"probs": constraints.simplex}, probs=probs)

    @classmethod
    def from_data(cls, data: Sequences, **priors: Any) -> Emission:
        """One category more than the largest value: a rare one may be missing from any sample of the data."""
        largest, given = 0, super().from_data(data, **priors)
        if "probs" in priors or "n_categories" in priors:
            return given
        for start in range(0, data.length, ROWS_AT_ONCE):
            block = data.rows(start, min(start + ROWS_AT_ONCE, data.length))
            known = block.values[block.observed]
            largest = max(largest, int(known.max())) if known.size else largest
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
        if self.n_categories is None:
            if summary.n_categories is None:
                raise ModelError(
                    "A Categorical emission needs categories 0, 1, 2, ..., but the data hold other "
                    "numbers: recode them, or choose another emission."
                )
            return Categorical(summary.n_categories).resolve(summary)
        return super().resolve(summary)

    def _tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
        if self.n_categories is None:
            raise ModelError(
                "The number of categories is not known yet: give n_categories, or resolve the model on the data first."
            )
        return super()._tails(n_states)

    def _trial_table(self) -> dict[str, Any]:
        return {} if self.n_categories is None else super()._trial_table()

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

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.zeros(jnp.shape(y))

    @property
    def lowering(self) -> TableLowering:
        return TableLowering(self, self.n_categories or 1)

    def conditional(self, n_levels: int, *, partial_rows: bool) -> Conditional | None:
        probs = self.parameters(n_levels)["probs"]
        prior = conjugate.dirichlet_prior(probs)
        if probs.is_free and prior is None:
            return None

        def draw(key: jax.Array, params: Params, totals: jax.Array) -> dict[str, jax.Array]:
            return {} if prior is None else {"probs": conjugate.draw_dirichlet(key, prior + totals)}

        return Conditional(self._counts, draw)

    def approximation(self, n_levels: int, centre: Any) -> Approximation | None:
        """Dirichlet probabilities."""
        prior = conjugate.dirichlet_prior(self.parameters(n_levels)["probs"])
        if prior is None:
            return None

        def expected(q: jax.Array, values: jax.Array, observed: jax.Array) -> jax.Array:
            logs = digamma(q) - digamma(jnp.sum(q, axis=1, keepdims=True))
            labels = jnp.where(observed[:, 0], values[:, 0], 0).astype(jnp.int32)
            return jnp.where(observed, logs.T[labels], 0.0)

        return Approximation(
            self._counts,
            lambda params, count: count[:, None] * params["probs"],
            lambda q, sums: prior + sums,
            jnp.asarray(prior),
            expected,
            lambda q: {"probs": q / jnp.sum(q, axis=1, keepdims=True)},
            lambda key, q: {"probs": conjugate.draw_dirichlet(key, q)},
        )

    def _counts(self, params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> jax.Array:
        labels = jnp.where(observed[:, 0], values[:, 0], 0).astype(jnp.int32)
        return (weights * observed).T @ jax.nn.one_hot(labels, self.n_categories or 1, dtype=weights.dtype)
