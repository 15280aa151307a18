"""Positive numbers by their mean and standard deviation, such as the steps of animals."""

from typing import Any, ClassVar

import jax
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.emissions.gamma import Gamma
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


def _natural(mean: Any, sd: Any) -> dict[str, Any]:
    """Concentration `(mean / sd)^2` and rate `mean / sd^2`."""
    ratio = mean / sd
    return {"concentration": ratio * ratio, "rate": ratio / sd}


def gamma_of_moments(mean: Any, sd: Any) -> Distribution:
    """The gamma distribution with this mean and standard deviation."""
    return dist.Gamma(**_natural(mean, sd), validate_args=False)


@EMISSIONS.register("gamma-moments")
class GammaMoments(Gamma):
    """y | x = k is gamma with `mean` and `sd`, each (K,), or (K, D) if dim > 1; made by `Gamma(mean=..., sd=...)`, too.

    Default priors: both are log-normal and wide, around the mean of the data and a third of their spread.
    """

    builder = gamma_of_moments
    regions: ClassVar = {"mean": constraints.positive, "sd": constraints.positive}

    def __init__(self, dim: int = 1, *, mean: Any = None, sd: Any = None) -> None:
        super(Gamma, self).__init__(dim, mean=mean, sd=sd)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        typical = np.log(np.where(summary.mean > 0, summary.mean, summary.sd))
        return {"mean": dist.LogNormal(self.per_feature(typical), 1.5), "sd": self.scale_prior(summary.sd)}

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        return super().natural_parameters(_natural(params["mean"], params["sd"]))
