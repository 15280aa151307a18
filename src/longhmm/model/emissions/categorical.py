"""Labels without order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError, check_whole
from longhmm.model.conjugate import OneParameter, draw_dirichlet, expected_log_shares, one_parameter, prior_numbers
from longhmm.model.emissions import Emission
from longhmm.model.emissions.family import Family
from longhmm.model.lowering import TABLE, Lowering
from longhmm.model.parameters import Parameter, Params, full_shape
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary

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
    support = constraints.nonnegative_integer  # until the number of categories is known

    def __init__(self, n_categories: int | None = None, *, probs: Any = None) -> None:
        if n_categories is None and probs is not None:
            shape = full_shape(probs) if isinstance(probs, Distribution) else np.shape(probs)
            n_categories = shape[-1] if shape else None
        self.n_categories = n_categories
        if n_categories is not None:
            check_whole("n_categories", n_categories, 1)
            self.support = constraints.integer_interval(0, n_categories - 1)
        super().__init__(probs=probs)

    @classmethod
    def from_data(cls, data: Sequences, **priors: Any) -> Emission:
        """One category more than the largest value: a rare one may be missing from any sample of the data."""
        given = super().from_data(data, **priors)
        if priors:
            return given
        return cls(1 + max(int(block.values[block.observed].max(initial=0)) for _, block in data.blocks(ROWS_AT_ONCE)))

    @classmethod
    def suits(cls, summary: DataSummary) -> tuple[int, str] | None:
        few = summary.n_categories is not None and summary.n_categories <= MOST_CATEGORIES
        if not few or len(summary.mean) > 1 or not summary.varies_less_than_counts:
            return None
        return 2, "the values are few whole numbers that vary less than counts would, like labels"

    def options(self) -> dict[str, Any]:
        return {"n_categories": self.n_categories}

    def tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
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

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        if self.n_categories is None:
            raise ModelError(
                "The number of categories is not known yet: give n_categories, or resolve the model on the data first."
            )
        return super().parameters(n_states)

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """A look-up: the row of category y in the table of log probabilities."""
        return jnp.log(jnp.asarray(params["probs"])).T[jnp.asarray(y).astype(jnp.int32)]

    def means(self, params: Params) -> jax.Array:
        """The expected category."""
        probs = jnp.asarray(params["probs"])
        return (probs @ jnp.arange(probs.shape[1], dtype=probs.dtype))[:, None]

    @property
    def lowering(self) -> TableLowering:
        return TableLowering(self, self.n_categories or 1)

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        """The mean, not the mode: from a probability of 0 no search would come back."""
        known = prior_numbers(self.parameters(len(groups))["probs"], (dist.Dirichlet,), (1.0,))
        counts = [np.bincount(own[np.isfinite(own)].astype(int), minlength=self.n_categories or 1) for own in groups]
        weights = counts + np.asarray(known[0] if known else 0.0)
        return {"probs": weights / weights.sum(axis=1, keepdims=True)} if known else None

    def conjugate(self, n_levels: int, centre: Any) -> OneParameter | None:
        """Dirichlet probabilities: `q` are the concentrations."""
        return one_parameter(
            self.parameters(n_levels)["probs"],
            (dist.Dirichlet,),
            (1.0,),
            rows=lambda values, observed: observed & (values == jnp.arange(self.n_categories)),
            rows_at=lambda probs: probs,
            factors=expected_log_shares,
            mean=lambda q: {"probs": q / jnp.sum(q, axis=-1, keepdims=True)},
            draw=lambda key, q: {"probs": draw_dirichlet(key, q)},
        )


class TableLowering(Lowering):
    """A log probability for each of C categories: natural parameters and sums `(C,)`."""

    kind = TABLE

    def __init__(self, emission: Emission, n_categories: int) -> None:
        super().__init__(emission, 1, n_categories, n_categories)

    def natural(self, params: Params) -> jax.Array:
        # The logarithm of 0 is what it should be: minus infinity, an impossible category.
        return jnp.log(jnp.asarray(params["probs"]))
