"""Gaussian emissions with full, diagonal or spherical covariance."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError
from longhmm.model.family import Family
from longhmm.model.multivariate_normal import LOG_2PI, full_log_density, marginal_log_density
from longhmm.model.parameter import Params
from longhmm.model.summary import DataSummary

KINDS = ("full", "diagonal", "spherical")
# States usually share the spread of all the data between them, so one state's variance is guessed at a tenth of it.
VARIANCE_SHARE = 0.1


class Gaussian(Family):
    """y | x = k is normal with `mean (K, D)` and

    - "full": `covariance (K, D, D)`,
    - "diagonal": `variance (K, D)`, one per feature,
    - "spherical": `variance (K,)`, the same for all features.

    The argument `covariance` is one of these words, or a prior or fixed value of the full covariance.

    Default priors: the mean is normal around the middle of the data with their range as standard deviation; the
    covariance is inverse Wishart with D + 2 degrees of freedom (a variance: inverse gamma with shape 3/2) whose mean
    is a tenth of the variance of the data.
    """

    def __init__(self, dim: int = 1, covariance: Any = "full", *, mean: Any = None, variance: Any = None) -> None:
        if isinstance(covariance, str) and covariance not in KINDS:
            raise ModelError(
                f"covariance must be one of {', '.join(map(repr, KINDS))} or a prior, but it was {covariance!r}."
            )
        self.covariance_kind: str = covariance if isinstance(covariance, str) else "full"
        priors = {"mean": mean}
        if self.covariance_kind == "full":
            if variance is not None:
                raise ModelError(
                    "A Gaussian with full covariance has no parameter 'variance': give the prior as "
                    "covariance=, or choose covariance='diagonal' or 'spherical'."
                )
            priors["covariance"] = None if isinstance(covariance, str) else covariance
            scatter = {"covariance": constraints.positive_definite}
        else:
            priors["variance"] = variance
            scatter = {"variance": constraints.positive}
        super().__init__(dim=dim, vector=True, regions={"mean": constraints.real, **scatter}, **priors)

    def options(self) -> dict[str, Any]:
        return {"dim": self._dim, "covariance": self.covariance_kind}

    def tails(self) -> dict[str, tuple[int, ...]]:
        if self.covariance_kind == "full":
            return {"mean": (self._dim,), "covariance": (self._dim, self._dim)}
        return {"mean": (self._dim,), "variance": (self._dim,) if self.covariance_kind == "diagonal" else ()}

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        mean = dist.Normal(summary.centre, summary.spread)
        guess = VARIANCE_SHARE * summary.sd**2
        if self.covariance_kind == "full":
            scatter = dist.InverseWishart(self._dim + 2.0, scale_tril=np.diag(np.sqrt(guess)))
            return {"mean": mean, "covariance": scatter}
        rate = 0.5 * guess if self.covariance_kind == "diagonal" else 0.5 * float(guess.mean())
        return {"mean": mean, "variance": dist.InverseGamma(1.5, rate)}

    @property
    def factorises(self) -> bool:
        return self.covariance_kind != "full"

    def location(self, params: Params) -> jax.Array:
        return jnp.asarray(params["mean"])[:, 0]

    # -- densities -----------------------------------------------------------------------------------------------

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        if self.covariance_kind == "full":
            return full_log_density(jnp.asarray(params["mean"]), jnp.asarray(params["covariance"]), y)
        return jnp.sum(self._feature_log_density(params, y), -1)

    def log_density_missing(
        self, params: Params, y: jax.Array, observed: jax.Array, *, partial: bool = True
    ) -> jax.Array:
        if not partial or self._dim == 1:
            whole = observed[..., :1]
            return jnp.where(whole, self.log_density(params, jnp.where(whole, y, 0)), 0)
        filled = jnp.where(observed, y, 0)
        if self.covariance_kind == "full":
            return marginal_log_density(
                jnp.asarray(params["mean"]), jnp.asarray(params["covariance"]), filled, observed
            )
        return jnp.sum(jnp.where(observed[..., None, :], self._feature_log_density(params, filled), 0), -1)

    def _feature_log_density(self, params: Params, y: jax.Array) -> jax.Array:
        inverse_sd = jax.lax.rsqrt(self._variance(params))
        z = (y[..., None, :] - params["mean"]) * inverse_sd
        return -0.5 * z * z + (jnp.log(inverse_sd) - 0.5 * LOG_2PI)

    def _variance(self, params: Params) -> jax.Array:
        """Variances (K, D), also where all features share one."""
        variance = jnp.asarray(params["variance"])
        if self.covariance_kind == "diagonal":
            return variance
        return jnp.broadcast_to(variance[:, None], (variance.shape[0], self._dim))

    # -- draws ---------------------------------------------------------------------------------------------------

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        mean = jnp.asarray(params["mean"])
        noise = jax.random.normal(key, (states.shape[0], self._dim), mean.dtype)
        if self.covariance_kind != "full":
            return mean[states] + noise * jnp.sqrt(self._variance(params))[states]
        factor = jnp.linalg.cholesky(params["covariance"])
        # A sum over a broadcast product: one fused loop, where a batch of tiny matrix products is slow.
        return mean[states] + jnp.sum(factor[states] * noise[:, None, :], -1)

    # -- exponential family: s(y) = (y, y_i y_j for i <= j), or (y, y_i^2), or (y, sum_i y_i^2) -----------------------

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        if self.covariance_kind == "full":
            rows, columns = np.triu_indices(self._dim)
            return jnp.concatenate([y, y[..., rows] * y[..., columns]], -1)
        squares = y * y
        if self.covariance_kind == "spherical":
            squares = jnp.sum(squares, -1, keepdims=True)
        return jnp.concatenate([y, squares], -1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        mean = jnp.asarray(params["mean"])
        if self.covariance_kind == "full":
            covariance = jnp.asarray(params["covariance"])
            precision = jnp.linalg.inv(covariance)
            linear = jnp.einsum("kij,kj->ki", precision, mean)
            rows, columns = np.triu_indices(self._dim)
            quadratic = -precision[:, rows, columns] * np.where(rows == columns, 0.5, 1.0).astype(mean.dtype)
            log_det = jnp.linalg.slogdet(covariance)[1]
        else:
            variance = self._variance(params)
            linear = mean / variance
            quadratic = -0.5 / variance if self.covariance_kind == "diagonal" else -0.5 / variance[:, :1]
            log_det = jnp.sum(jnp.log(variance), -1)
        log_normaliser = 0.5 * (jnp.sum(linear * mean, -1) + log_det + self._dim * LOG_2PI)
        return jnp.concatenate([linear, quadratic], -1), log_normaliser

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.zeros(y.shape[:-1], jnp.result_type(y, jnp.float32))
