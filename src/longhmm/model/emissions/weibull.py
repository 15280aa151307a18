"""Waiting times whose hazard rises or falls."""

from typing import Any, ClassVar

import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.emissions.family import Family
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


@EMISSIONS.register("weibull")
class Weibull(Family):
    """y | x = k is Weibull with `scale` and `concentration`, each (K,), or (K, D) if dim > 1; the hazard rises where
    the concentration is above 1.

    Default priors: the scale is log-normal, wide, around the mean of the data, the concentration log-normal around 1.
    """

    builder, support = dist.Weibull, constraints.positive
    regions: ClassVar = {"scale": constraints.positive, "concentration": constraints.positive}

    def __init__(self, dim: int = 1, *, scale: Any = None, concentration: Any = None) -> None:
        super().__init__(dim, scale=scale, concentration=concentration)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        scale = dist.LogNormal(self.per_feature(np.log(np.maximum(summary.mean, 1e-3 * summary.sd))), 2.0)
        return {"scale": scale, "concentration": dist.LogNormal(0.0, 1.0)}
