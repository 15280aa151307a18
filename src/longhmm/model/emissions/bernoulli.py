"""Zeros and ones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.conjugate import OneParameter, draw_dirichlet, expected_log_shares, one_parameter
from longhmm.model.emissions.family import Family
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


@EMISSIONS.register("bernoulli")
class Bernoulli(Family):
    """Each of D features is 1 with probability `probs`, (K,), or (K, D) if dim > 1, independently given the state.

    Default prior: uniform.
    """

    builder, support, regions = dist.BernoulliProbs, constraints.boolean, {"probs": constraints.unit_interval}
    statistics = ("value",)

    def __init__(self, dim: int = 1, *, probs: Any = None) -> None:
        if type(probs) is dist.Uniform and np.all(probs.low == 0) and np.all(probs.high == 1):
            probs = dist.Beta(np.ones(probs.batch_shape), 1.0)  # the same distribution, under its conjugate name
        super().__init__(dim, probs=probs)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"probs": dist.Beta(1.0, 1.0)}

    @classmethod
    def suits(cls, summary: DataSummary) -> tuple[int, str] | None:
        return (3, "all values are 0 or 1") if summary.n_categories in (1, 2) else None

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        probs = self.with_features(params["probs"])
        return jnp.log(probs) - jnp.log1p(-probs), -jnp.log1p(-probs)

    def conjugate(self, n_levels: int, centre: Any) -> OneParameter | None:
        """Beta probabilities: `q` are both concentrations."""
        return one_parameter(
            self.parameters(n_levels)["probs"],
            (dist.Beta,),
            (1.0, 1.0),
            rows=lambda values, observed: jnp.stack([observed & (values == 1), observed & (values == 0)], -1),
            rows_at=lambda probs: jnp.stack([probs, 1.0 - probs], -1),
            factors=expected_log_shares,
            mean=lambda q: {"probs": q[..., 0] / jnp.sum(q, axis=-1)},
            draw=lambda key, q: {"probs": draw_dirichlet(key, q)[..., 0]},
        )
