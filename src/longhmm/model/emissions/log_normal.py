"""Positive numbers over orders of magnitude."""

from typing import Any, ClassVar

import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.emissions.family import Family
from longhmm.model.lowering import GaussianLowering, module_of
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary

DECADES = 3  # positive values that span more are usually multiplicative


@EMISSIONS.register("log-normal")
class LogNormal(Family):
    """log y | x = k is normal with mean `loc` and standard deviation `scale`, each (K,), or (K, D) if dim > 1.

    Default priors, from the logarithms of the data: `loc` is normal around the middle of their range with the range as
    standard deviation; `scale` is log-normal around a third of their standard deviation.
    """

    builder, support = dist.LogNormal, constraints.positive
    regions: ClassVar = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(self, dim: int = 1, *, loc: Any = None, scale: Any = None) -> None:
        super().__init__(dim, loc=loc, scale=scale)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        tiny = np.finfo(np.float32).tiny  # values that are not positive are reported when the data are checked
        logs = np.log(np.maximum(summary.quantiles, tiny))
        sd = np.maximum(logs.std(-1), 1e-3)
        centre, spread = 0.5 * (logs[:, -1] + logs[:, 0]), np.maximum(logs[:, -1] - logs[:, 0], sd)
        return {"loc": dist.Normal(self.per_feature(centre), self.per_feature(spread)), "scale": self.scale_prior(sd)}

    def log_base_measure(self, y: Any) -> Any:
        return -module_of(y).log(y)

    @classmethod
    def suits(cls, summary: DataSummary) -> tuple[int, str] | None:
        low, high = summary.quantiles[:, 1].min(), summary.quantiles[:, -2].max()
        if summary.whole.all() or summary.ends.min() <= 0 or high <= 10**DECADES * low:
            return None
        return 1, f"the values are positive and span {np.log10(high / low):.0f} orders of magnitude"

    @property
    def lowering(self) -> GaussianLowering:
        return GaussianLowering(self, lambda p: [self.with_features(p[name]) for name in ("loc", "scale")], logs=True)
