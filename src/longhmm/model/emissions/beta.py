"""Shares: numbers between 0 and 1."""

from typing import Any, ClassVar

from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.emissions.family import Family
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


@EMISSIONS.register("beta")
class Beta(Family):
    """y | x = k is beta with `concentration1` and `concentration0`, each (K,), or (K, D) if dim > 1; its mean is
    concentration1 / (concentration1 + concentration0).

    Default priors: both are log-normal and wide.
    """

    builder, support = dist.Beta, constraints.unit_interval
    regions: ClassVar = {"concentration1": constraints.positive, "concentration0": constraints.positive}

    def __init__(self, dim: int = 1, *, concentration1: Any = None, concentration0: Any = None) -> None:
        super().__init__(dim, concentration1=concentration1, concentration0=concentration0)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"concentration1": dist.LogNormal(1.0, 1.5), "concentration0": dist.LogNormal(1.0, 1.5)}
