"""Gaussian emissions with full, diagonal or spherical covariance."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError
from longhmm.model import conjugate
from longhmm.model import normal_updates as updates
from longhmm.model.conjugate import Approximation, Conditional, Sums
from longhmm.model.covariance import LOG_2PI, full_log_density, marginal_log_density
from longhmm.model.emissions.base import Emission
from longhmm.model.emissions.family import Family
from longhmm.model.emissions.registry import register
from longhmm.model.lowering import FullGaussianLowering, GaussianLowering
from longhmm.model.parameters import Params
from longhmm.model.summary import DataSummary, Sample, Suit

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences

KINDS = ("full", "diagonal", "spherical")
# States usually share the spread of all the data between them, so one state's variance is guessed at a tenth of it.
VARIANCE_SHARE = 0.1
MOST_FULL = 16  # features whose covariances are all estimated by default; with more, each has only a variance


@register("gaussian")
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
        if self.has_full_covariance:
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

    @property
    def has_full_covariance(self) -> bool:
        return self.covariance_kind == "full"

    @property
    def factorises(self) -> bool:
        return not self.has_full_covariance

    def options(self) -> dict[str, Any]:
        return {"dim": self._dim, "covariance": self.covariance_kind}

    def tails(self) -> dict[str, tuple[int, ...]]:
        if self.has_full_covariance:
            return {"mean": (self._dim,), "covariance": (self._dim, self._dim)}
        return {"mean": (self._dim,), "variance": (self._dim,) if self.covariance_kind == "diagonal" else ()}

    # -- the data ------------------------------------------------------------------------------------------------

    @classmethod
    def from_data(cls, data: Sequences, **priors: Any) -> Emission:
        if "covariance" not in priors:
            # Of one feature the three kinds are the same model; a variance is the easiest to read.
            diagonal = "variance" in priors or data.dim > MOST_FULL
            priors["covariance"] = "spherical" if data.dim == 1 else "diagonal" if diagonal else "full"
        return cls(dim=data.dim, **priors)

    @classmethod
    def suits(cls, sample: Sample) -> Suit:
        if not sample.whole:
            return Suit(0, f"the values are real numbers{_HINT if sample.dim == 1 else ''}")
        if sample.known.min() < 0:
            return Suit(0, "the values are whole numbers of both signs, like those of a converter")
        return Suit(0, "the values are whole numbers too large or too alike for counts")

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        mean = dist.Normal(summary.centre, summary.spread)
        guess = VARIANCE_SHARE * summary.sd**2
        if self.has_full_covariance:
            scatter = dist.InverseWishart(self._dim + 2.0, scale_tril=np.diag(np.sqrt(guess)))
            return {"mean": mean, "covariance": scatter}
        rate = 0.5 * guess if self.covariance_kind == "diagonal" else 0.5 * float(guess.mean())
        return {"mean": mean, "variance": dist.InverseGamma(1.5, rate)}

    # -- densities and draws -------------------------------------------------------------------------------------

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        if self.has_full_covariance:
            return full_log_density(jnp.asarray(params["mean"]), jnp.asarray(params["covariance"]), y)
        return jnp.sum(self._feature_log_density(params, y), -1)

    def log_density_missing(
        self, params: Params, y: jax.Array, observed: jax.Array, *, partial: bool = True
    ) -> jax.Array:
        if not partial or self._dim == 1:
            whole = observed[..., :1]
            return jnp.where(whole, self.log_density(params, jnp.where(whole, y, 0)), 0)
        filled = jnp.where(observed, y, 0)
        if self.has_full_covariance:
            return marginal_log_density(
                jnp.asarray(params["mean"]), jnp.asarray(params["covariance"]), filled, observed
            )
        return jnp.sum(jnp.where(observed[..., None, :], self._feature_log_density(params, filled), 0), -1)

    def _feature_log_density(self, params: Params, y: jax.Array) -> jax.Array:
        inverse_sd = jax.lax.rsqrt(self.variances(params))
        z = (y[..., None, :] - params["mean"]) * inverse_sd
        return jnp.add(-0.5 * z * z, jnp.log(inverse_sd) - 0.5 * LOG_2PI)

    def variances(self, params: Params) -> jax.Array:
        """The variance of every feature in every state, `(K, D)`."""
        if self.has_full_covariance:
            diagonal: jax.Array = jnp.diagonal(jnp.asarray(params["covariance"]), axis1=-2, axis2=-1)
            return diagonal
        variance = jnp.asarray(params["variance"])
        return jnp.broadcast_to(variance.reshape(variance.shape[0], -1), (variance.shape[0], self._dim))

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        below = ndtr((values[:, None, :] - params["mean"]) / jnp.sqrt(self.variances(params)))
        return below, below

    def means(self, params: Params) -> jax.Array:
        return jnp.asarray(params["mean"])

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        mean = jnp.asarray(params["mean"])
        noise = jax.random.normal(key, (states.shape[0], self._dim), mean.dtype)
        if not self.has_full_covariance:
            return mean[states] + noise * jnp.sqrt(self.variances(params))[states]
        factor = jnp.linalg.cholesky(params["covariance"])
        # A sum over a broadcast product: one fused loop, where a batch of tiny matrix products is slow.
        return mean[states] + jnp.sum(factor[states] * noise[:, None, :], -1)

    # -- exponential family: s(y) = (y, y_i y_j for i <= j), or (y, y_i^2), or (y, sum_i y_i^2) -----------------------

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        if self.has_full_covariance:
            rows, columns = np.triu_indices(self._dim)
            return jnp.concatenate([y, y[..., rows] * y[..., columns]], -1)
        squares = y * y
        if self.covariance_kind == "spherical":
            squares = jnp.sum(squares, -1, keepdims=True)
        return jnp.concatenate([y, squares], -1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        mean = jnp.asarray(params["mean"])
        if self.has_full_covariance:
            covariance = jnp.asarray(params["covariance"])
            precision = jnp.linalg.inv(covariance)
            linear = jnp.einsum("kij,kj->ki", precision, mean)
            rows, columns = np.triu_indices(self._dim)
            quadratic = -precision[:, rows, columns] * np.where(rows == columns, 0.5, 1.0).astype(mean.dtype)
            log_det = jnp.linalg.slogdet(covariance)[1]
        else:
            variance = self.variances(params)
            linear = mean / variance
            quadratic = -0.5 / variance if self.covariance_kind == "diagonal" else -0.5 / variance[:, :1]
            log_det = jnp.sum(jnp.log(variance), -1)
        log_normaliser = 0.5 * (jnp.sum(linear * mean, -1) + log_det + self._dim * LOG_2PI)
        return jnp.concatenate([linear, quadratic], -1), log_normaliser

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.zeros(y.shape[:-1], jnp.result_type(y, jnp.float32))

    def centre(self, params: Params) -> Any:
        """The middle of the means: sums of squares of numbers near 10^6 leave no digits for a variance of 1."""
        return params["mean"].sum(0) / params["mean"].shape[0]

    def recentred(self, params: Params, centre: Any) -> dict[str, Any]:
        return {**params, "mean": params["mean"] - centre}

    # -- kernels and closed forms --------------------------------------------------------------------------------

    @property
    def lowering(self) -> GaussianLowering:
        return FullGaussianLowering(self) if self.has_full_covariance else _Independent(self)

    def conditional(self, n_levels: int, *, partial_rows: bool) -> Conditional | None:
        table = self.parameters(n_levels)
        mean = conjugate.normal_prior(table["mean"])
        if table["mean"].is_free and mean is None:
            return None
        if self.has_full_covariance:
            scatter = conjugate.inverse_wishart_prior(table["covariance"])
            # A row observed in part says something about the rest of it, which no sum over rows holds.
            if partial_rows or (table["covariance"].is_free and scatter is None):
                return None
            return updates.full_conditional(mean, scatter)
        variance = conjugate.inverse_gamma_prior(table["variance"])
        if table["variance"].is_free and (variance is None or not variance.proper):
            return None
        return updates.independent_conditional(mean, variance, shared=self.covariance_kind == "spherical")

    def mode(self, n_levels: int, sums: Sums, *, start: Params | None, prior: bool) -> dict[str, np.ndarray] | None:
        table = self.parameters(n_levels)
        if type(self) is not Gaussian or not all(parameter.is_free for parameter in table.values()):
            return None
        shape = table["mean"].shape
        mean = conjugate.normal_prior(table["mean"]) if prior else conjugate.flat_normal(shape)
        best: Any
        if self.has_full_covariance:
            own = table["covariance"]
            wishart = conjugate.inverse_wishart_prior(own) if prior else conjugate.flat_wishart(own.shape)
            best = None if wishart is None else partial(updates.best_covariance, sums, wishart)
        else:
            own, shared = table["variance"], self.covariance_kind == "spherical"
            pair = conjugate.inverse_gamma_prior(own) if prior else conjugate.flat_inverse_gamma(own.shape)
            best = None if pair is None else partial(updates.best_variance, sums, pair, shared=shared)
        if mean is None or best is None:
            return None
        found = updates.normal_mode(mean, sums, None if start is None else start["mean"], best)
        if found is None:
            return None
        spread = found[1] if self.has_full_covariance else np.diagonal(found[1], axis1=1, axis2=2)
        return {"mean": found[0], own.name: spread[:, 0] if own.shape == shape[:1] else spread}

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        centre = np.mean([group.mean(axis=0) for group in groups], axis=0)
        with jax.enable_x64(True):
            statistics = [np.asarray(self.sufficient_statistics(group - centre)).sum(axis=0) for group in groups]
        counts = np.array([len(group) for group in groups], np.float64)
        return self.mode(len(groups), Sums(np.stack(statistics), counts, centre), start=None, prior=True)

    def approximation(self, n_levels: int, centre: Any) -> Approximation | None:
        if not self.has_full_covariance:
            return None
        table = self.parameters(n_levels)
        mean, wishart = conjugate.normal_prior(table["mean"]), conjugate.inverse_wishart_prior(table["covariance"])
        if mean is None or wishart is None or not wishart.proper:  # it begins as the prior
            return None
        return updates.gaussian_approximation(mean, wishart, centre)


class _Independent(GaussianLowering):
    """Of diagonal and spherical covariances."""

    emission: Gaussian

    def features(self, params: Params) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(params["mean"]), jnp.sqrt(self.emission.variances(params))

    def expected_statistics(self, params: Any, sums: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found, count = super().expected_statistics(params, sums, centre)
        if self.emission.covariance_kind == "spherical":
            first, squares = found[:, : self.width], found[:, self.width :]
            found = np.concatenate([first, squares.sum(axis=1, keepdims=True)], axis=1)
        return found, count


_HINT = "; with outliers, try --emission student-t"
