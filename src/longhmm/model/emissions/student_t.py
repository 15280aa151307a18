"""Student's t, which forgives outliers."""

from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.densities import STUDENT, DensityLowering, student
from longhmm.model.emissions.family import Family
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


class AccurateStudentT(dist.StudentT):
    """Student's t whose derivative in `df` survives single precision. The textbook normaliser is a difference of two
    log gamma functions and a logarithm, which agree in all but the last digits once `df` is large. Over half a million
    observations the rounding errors of its derivative in float32 add up to several posterior standard deviations. The
    differences are taken on paper here, by Stirling's series."""

    def log_prob(self, value: Any, intermediates: Any = None) -> jax.Array:
        squared = ((value - self.loc) / self.scale) ** 2
        df = jnp.asarray(self.df)
        return log_normaliser(df) - jnp.log(self.scale) - 0.5 * (df + 1.0) * jnp.log1p(squared / df)


def log_normaliser(df: jax.Array) -> jax.Array:
    """`log Gamma((v + 1) / 2) - log Gamma(v / 2) - log(pi v) / 2`."""
    # The first term that is left out is 0.9 / v^9: below the last digit of either precision from here on.
    limit = 30.0 if df.dtype == jnp.float64 else 8.0
    large = jnp.where(df > limit, df, limit)
    inverse = 1.0 / large
    square = inverse * inverse
    series = inverse * (-1.0 / 4 + square * (1.0 / 24 + square * (-1.0 / 20 + square * (17.0 / 112))))
    small = jnp.where(df > limit, limit, df)
    direct = gammaln(0.5 * (small + 1.0)) - gammaln(0.5 * small) - 0.5 * jnp.log(np.pi * small)
    return jnp.where(df > limit, series - 0.5 * np.log(2 * np.pi), direct)


@EMISSIONS.register("student-t")
class StudentT(Family):
    """y | x = k is Student's t with `df` degrees of freedom, `loc` and `scale`, each (K,), or (K, D) if dim > 1.

    Default priors: `df` is Gamma(2, 1/10), which keeps away from both 0 and the Gaussian limit; `loc` is normal around
    the middle of the data with their range as standard deviation; `scale` is log-normal around a third of their
    standard deviation.
    """

    builder, mean_name = AccurateStudentT, "loc"
    regions: ClassVar = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}

    def __init__(self, dim: int = 1, *, df: Any = None, loc: Any = None, scale: Any = None) -> None:
        super().__init__(dim, df=df, loc=loc, scale=scale)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        loc = dist.Normal(self.per_feature(summary.centre), self.per_feature(summary.spread))
        return {"df": dist.Gamma(2.0, 0.1), "loc": loc, "scale": self.scale_prior(summary.sd)}

    @property
    def lowering(self) -> DensityLowering:
        return DensityLowering(self, STUDENT, 4 * self.dim, partial(student, self, log_normaliser))
