"""Waiting times without memory."""

from typing import Any, ClassVar

import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.emissions.family import Family
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


@EMISSIONS.register("exponential")
class Exponential(Family):
    """y | x = k is exponential with `rate` (K,), or (K, D) if dim > 1; its mean is 1 / rate.

    Default prior: log-normal, wide, around one over the mean of the data.
    """

    builder, support = dist.Exponential, constraints.positive
    regions: ClassVar = {"rate": constraints.positive}

    def __init__(self, dim: int = 1, *, rate: Any = None) -> None:
        super().__init__(dim, rate=rate)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"rate": dist.LogNormal(self.per_feature(-np.log(np.maximum(summary.mean, 1e-3 * summary.sd))), 2.0)}
