"""Positive numbers, such as waiting times."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.emissions.family import Family
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


@EMISSIONS.register("gamma")
class Gamma(Family):
    """y | x = k is gamma with `concentration` and `rate` (mean concentration / rate), each (K,), or (K, D) if dim > 1;
    or with `mean` and `sd`, a `GammaMoments`.

    Default priors: both are log-normal and wide, and the rate is scaled so that the mean of the data is typical.
    """

    builder, support, statistics = dist.Gamma, constraints.positive, ("log", "value")
    regions: ClassVar = {"concentration": constraints.positive, "rate": constraints.positive}

    otherwise = "gamma-moments", ("mean", "sd")

    def __init__(
        self, dim: int = 1, *, concentration: Any = None, rate: Any = None, mean: Any = None, sd: Any = None
    ) -> None:
        super().__init__(dim, concentration=concentration, rate=rate)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        typical = np.log(2.0 / np.where(summary.mean > 0, summary.mean, summary.sd))
        rate = dist.LogNormal(self.per_feature(typical), 2.0)
        return {"concentration": dist.LogNormal(np.log(2.0), 1.5), "rate": rate}

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        shape, rate = self.with_features(params["concentration"]), self.with_features(params["rate"])
        return jnp.concatenate([shape - 1.0, -rate], -1), gammaln(shape) - shape * jnp.log(rate)
