"""Student's t emissions: a Gaussian that forgives outliers."""

from __future__ import annotations

from typing import Any

from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.family import Family
from longhmm.model.summary import DataSummary


class StudentT(Family):
    """y | x = k is Student's t with `df` degrees of freedom, `loc` and `scale`, each (K,), or (K, D) if dim > 1.

    Default priors: `df` is Gamma(2, 1/10), which keeps away from both 0 and the Gaussian limit; `loc` is normal around
    the middle of the data with their range as standard deviation; `scale` is log-normal around a third of their
    standard deviation.
    """

    builder = dist.StudentT
    support = constraints.real

    def __init__(self, dim: int = 1, *, df: Any = None, loc: Any = None, scale: Any = None) -> None:
        super().__init__(
            dim=dim,
            vector=False,
            df=df,
            loc=loc,
            scale=scale,
            regions={"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive},
        )

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {
            "df": dist.Gamma(2.0, 0.1),
            "loc": dist.Normal(self.per_feature(summary.centre), self.per_feature(summary.spread)),
            "scale": self.scale_prior(summary.sd),
        }
