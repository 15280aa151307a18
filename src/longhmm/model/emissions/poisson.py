"""Counts: Poisson."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.conjugate import OneParameter, one_parameter
from longhmm.model.emissions.family import Family
from longhmm.model.lowering import as_float
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary

LARGE_COUNTS = 1000  # beyond, counts are as good as real numbers


@EMISSIONS.register("poisson")
class Poisson(Family):
    """y | x = k is Poisson with `rate` (K,), or (K, D) for D independent counts.

    Default prior: exponential (gamma with shape 1, which is conjugate) with half the largest count as mean.
    """

    builder, support, regions = dist.Poisson, constraints.nonnegative_integer, {"rate": constraints.positive}
    statistics, mean_name = ("value",), "rate"

    def __init__(self, dim: int = 1, *, rate: Any = None) -> None:
        super().__init__(dim, rate=rate)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"rate": dist.Gamma(1.0, self.per_feature(1.0 / summary.typical_rate))}

    @classmethod
    def suits(cls, summary: DataSummary) -> tuple[int, str] | None:
        if summary.n_categories is None or summary.varies_less_than_counts or summary.mean.mean() > LARGE_COUNTS:
            return None
        return 1, "the values are counts; if they are labels, give --emission categorical"

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        rate = self.with_features(params["rate"])
        return jnp.log(rate), rate

    def log_base_measure(self, y: Any) -> Any:
        if isinstance(y, np.ndarray) and y.max(initial=0) < 1 << 20:  # each count is looked at once
            return -np.cumsum(np.log(np.maximum(np.arange(y.max(initial=0) + 1.0), 1.0)))[y.astype(np.int64)]
        return -gammaln(as_float(y) + 1.0)

    def conjugate(self, n_levels: int, centre: Any) -> OneParameter | None:
        """Gamma rates: `q` are shape and rate."""
        return one_parameter(
            self.parameters(n_levels)["rate"],
            (dist.Gamma, dist.Exponential),
            (1.0, 0.0),
            rows=lambda values, observed: jnp.stack([jnp.where(observed, values, 0), observed], -1),
            rows_at=lambda rate: jnp.stack([rate, jnp.ones_like(rate)], -1),
            factors=lambda q: jnp.stack([digamma(q[..., 0]) - jnp.log(q[..., 1]), -q[..., 0] / q[..., 1]], -1),
            mean=lambda q: {"rate": q[..., 0] / q[..., 1]},
            draw=lambda key, q: {"rate": jnp.exp(jax.random.loggamma(key, q[..., 0])) / q[..., 1]},
            log_base_measure=lambda y, seen: jnp.sum(self.log_base_measure(jnp.where(seen, y, 0)), -1, keepdims=True),
        )
