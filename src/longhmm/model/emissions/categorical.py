"""Categorical emissions: labels without order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError
from longhmm.model.conjugate import OneParameter, draw_dirichlet, expected_log_shares, prior_numbers
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
class Categorical(Family):
    """y | x = k is one of the categories 0, ..., C - 1 with probabilities `probs (K, C)`.

    `n_categories` may be left out: it is then taken from the prior of `probs`, or from the largest value in the data.
    Default prior: a flat Dirichlet.
    """

    builder, regions = dist.CategoricalProbs, {"probs": constraints.simplex}

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

    def conjugate(self, n_levels: int, centre: Any) -> OneParameter | None:
        """Dirichlet probabilities: `q` are the concentrations."""
        parameter = self.parameters(n_levels)["probs"]
        prior = prior_numbers(parameter, (dist.Dirichlet,), (1.0,))
        if parameter.is_free and prior is None:
            return None
        return OneParameter(
            "probs",
            prior and prior[0],
            rows=lambda values, observed: observed & (values == jnp.arange(self.n_categories)),
            rows_at=lambda probs: probs,
            factors=expected_log_shares,
            value=lambda q: q / jnp.sum(q, axis=-1, keepdims=True),
            draw_value=draw_dirichlet,
        )


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
