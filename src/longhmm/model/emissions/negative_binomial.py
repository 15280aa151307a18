"""Counts that vary more than Poisson ones: negative binomial."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.emissions.family import Family
from longhmm.model.lowering import as_float
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


class AccurateNegativeBinomial(dist.NegativeBinomial2):
    """NumPyro's form loses no digits to cancellation but is an approximation good to 1e-6: right for float32 only."""

    pytree_data_fields = ("mean_count",)

    def __init__(self, mean: Any, concentration: Any, *, validate_args: bool | None = None) -> None:
        self.mean_count = jnp.asarray(mean)
        super().__init__(mean, concentration, validate_args=validate_args)

    def log_prob(self, value: Any, intermediates: Any = None) -> jax.Array:
        mean, concentration, values = self.mean_count, jnp.asarray(self.concentration), as_float(value)
        if jnp.result_type(values, mean, concentration) != jnp.float64:
            return jnp.asarray(super().log_prob(value))
        ways = gammaln(values + concentration) - gammaln(concentration) - gammaln(values + 1.0)
        odds = jnp.log(mean) - jnp.log(concentration + mean)
        return jnp.asarray(ways + values * odds - concentration * jnp.log1p(mean / concentration))


@EMISSIONS.register("negative-binomial")
class NegativeBinomial(Family):
    """y | x = k is negative binomial with `mean` and `concentration`, each (K,), or (K, D) for D independent counts.

    The variance is mean + mean^2 / concentration. Default priors: `mean` is exponential with half the largest count as
    mean; `concentration` is log-normal, wide, around 3.
    """

    builder, mean_name, support = AccurateNegativeBinomial, "mean", constraints.nonnegative_integer
    regions: ClassVar = {"mean": constraints.positive, "concentration": constraints.positive}

    def __init__(self, dim: int = 1, *, mean: Any = None, concentration: Any = None) -> None:
        super().__init__(dim, mean=mean, concentration=concentration)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        mean = dist.Gamma(1.0, self.per_feature(1.0 / summary.typical_rate))
        return {"mean": mean, "concentration": dist.LogNormal(np.log(3.0), 1.5)}
