"""Emissions of counts: Poisson and negative binomial."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.family import Family, as_float, sum_features
from longhmm.model.parameter import Params
from longhmm.model.summary import DataSummary


def typical_rate(summary: DataSummary) -> np.ndarray:
    """The mean of an exponential prior for rates: wide enough for a state that owns the largest counts."""
    return np.maximum(np.maximum(summary.mean, 0.5 * summary.maximum), 0.1)


class Poisson(Family):
    """y | x = k is Poisson with `rate` (K,), or (K, D) for D independent counts.

    Default prior: exponential (gamma with shape 1, which is conjugate) with half the largest count as mean.
    """

    builder = dist.Poisson
    support = constraints.nonnegative_integer

    def __init__(self, dim: int = 1, *, rate: Any = None) -> None:
        super().__init__(dim=dim, vector=False, regions={"rate": constraints.positive}, rate=rate)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"rate": dist.Gamma(1.0, self.per_feature(1.0 / typical_rate(summary)))}

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        return as_float(self.with_features(y))

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        rate = self.with_features(params["rate"])
        return jnp.log(rate), sum_features(rate)

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return sum_features(-gammaln(as_float(self.with_features(y)) + 1.0))


class NegativeBinomial(Family):
    """y | x = k is negative binomial with `mean` and `concentration`, each (K,), or (K, D) for D independent counts.

    The variance is mean + mean^2 / concentration. Default priors: `mean` is exponential with half the largest count as
    mean; `concentration` is log-normal, wide, around 3.
    """

    builder = dist.NegativeBinomial2
    support = constraints.nonnegative_integer

    def __init__(self, dim: int = 1, *, mean: Any = None, concentration: Any = None) -> None:
        super().__init__(
            dim=dim,
            vector=False,
            mean=mean,
            concentration=concentration,
            regions={"mean": constraints.positive, "concentration": constraints.positive},
        )

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {
            "mean": dist.Gamma(1.0, self.per_feature(1.0 / typical_rate(summary))),
            "concentration": dist.LogNormal(np.log(3.0), 1.5),
        }

    def _feature_log_density(self, params: Params, y: jax.Array) -> jax.Array:
        mean, concentration = jnp.asarray(params["mean"]), jnp.asarray(params["concentration"])
        values = as_float(y)[..., None, :] if self._dim > 1 else as_float(y)[..., None]
        if jnp.result_type(values, mean, concentration) != jnp.float64:
            return super()._feature_log_density(params, y)
        # NumPyro's form loses no digits to cancellation but is an approximation good to 1e-6: right for float32 only.
        ways = gammaln(values + concentration) - gammaln(concentration) - gammaln(values + 1.0)
        odds = jnp.log(mean) - jnp.log(concentration + mean)
        return ways + values * odds - concentration * jnp.log1p(mean / concentration)
