"""Emissions of positive numbers: log-normal and gamma."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.family import Family, as_float, sum_features
from longhmm.model.multivariate_normal import LOG_2PI
from longhmm.model.parameter import Params
from longhmm.model.summary import DataSummary


class LogNormal(Family):
    """log y | x = k is normal with mean `loc` and standard deviation `scale`, each (K,), or (K, D) if dim > 1.

    Default priors, from the logarithms of the data: `loc` is normal around the middle of their range with the range as
    standard deviation; `scale` is log-normal around a third of their standard deviation.
    """

    builder = dist.LogNormal
    support = constraints.positive

    def __init__(self, dim: int = 1, *, loc: Any = None, scale: Any = None) -> None:
        super().__init__(
            dim=dim,
            vector=False,
            regions={"loc": constraints.real, "scale": constraints.positive},
            loc=loc,
            scale=scale,
        )

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        tiny = np.finfo(np.float32).tiny  # values that are not positive are reported when the data are checked
        logs = np.log(np.maximum(summary.quantiles, tiny))
        sd = np.maximum(logs.std(-1), 1e-3)
        centre, spread = 0.5 * (logs[:, -1] + logs[:, 0]), np.maximum(logs[:, -1] - logs[:, 0], sd)
        return {"loc": dist.Normal(self.per_feature(centre), self.per_feature(spread)), "scale": self.scale_prior(sd)}

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        """(log y, log^2 y), features one after the other."""
        logs = jnp.log(self.with_features(y))
        return jnp.concatenate([logs, logs * logs], -1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        loc, variance = self.with_features(params["loc"]), self.with_features(params["scale"]) ** 2
        log_normaliser = 0.5 * jnp.sum(loc**2 / variance + jnp.log(variance) + LOG_2PI, -1)
        return jnp.concatenate([loc / variance, -0.5 / variance], -1), log_normaliser

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return sum_features(-jnp.log(self.with_features(y)))


class Gamma(Family):
    """y | x = k is gamma with `concentration` and `rate` (mean concentration / rate), each (K,), or (K, D) if dim > 1.

    Default priors: both are log-normal and wide, and the rate is scaled so that the mean of the data is typical.
    """

    builder = dist.Gamma
    support = constraints.positive

    def __init__(self, dim: int = 1, *, concentration: Any = None, rate: Any = None) -> None:
        super().__init__(
            dim=dim,
            vector=False,
            concentration=concentration,
            rate=rate,
            regions={"concentration": constraints.positive, "rate": constraints.positive},
        )

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        typical = np.log(2.0 / np.where(summary.mean > 0, summary.mean, summary.sd))
        return {
            "concentration": dist.LogNormal(np.log(2.0), 1.5),
            "rate": dist.LogNormal(self.per_feature(typical), 2.0),
        }

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        """(log y, y), features one after the other."""
        values = self.with_features(y)
        return jnp.concatenate([jnp.log(values), values], -1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        shape, rate = self.with_features(params["concentration"]), self.with_features(params["rate"])
        log_normaliser = sum_features(gammaln(shape) - shape * jnp.log(rate))
        return jnp.concatenate([shape - 1.0, -rate], -1), log_normaliser

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.zeros(self.with_features(y).shape[:-1], as_float(y).dtype)
