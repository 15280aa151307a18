"""Gaussian emissions with full, diagonal or spherical covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.conjugate import Conjugate, RootInverseGamma, Sums, is_flat
from longhmm.model.covariance import (
    LOG_2PI,
    full_log_density,
    log_det_of,
    marginal_log_density,
    scatter_density,
    whitening,
)
from longhmm.model.emissions.base import Emission
from longhmm.model.emissions.family import Family
from longhmm.model.lowering import GaussianLowering
from longhmm.model.normal_updates import NormalUpdates
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary, Sample, Suit

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences

KINDS = ("full", "diagonal", "spherical")
# States usually share the spread of all the data between them, so one state's variance is guessed at a tenth of it.
VARIANCE_SHARE = 0.1
REGIONS = {"sd": constraints.positive, "variance": constraints.positive, "covariance": constraints.positive_definite}
MOST_FULL = 16  # features whose covariances are all estimated by default; with more, each has only a variance


@EMISSIONS.register("gaussian")
class Gaussian(Family):
    """y | x = k is normal. One feature has `mean (K,)` and `sd (K,)`; several have `mean (K, D)` and

    - "full": `covariance (K, D, D)`,
    - "diagonal": `variance (K, D)`, one per feature,
    - "spherical": `variance (K,)`, the same for all features.

    The argument `covariance` is one of these words, or a prior or fixed value of the full covariance; with one feature
    it says nothing.

    Default priors: the mean is normal around the middle of the data with their range as standard deviation; the
    covariance is inverse Wishart with D + 2 degrees of freedom (a variance, and the square of `sd`: inverse gamma with
    shape 3/2) whose mean is a tenth of the variance of the data.
    """

    def __init__(
        self, dim: int = 1, covariance: Any = "full", *, mean: Any = None, sd: Any = None, variance: Any = None
    ) -> None:
        if isinstance(covariance, str) and covariance not in KINDS:
            raise ModelError(
                f"covariance must be one of {', '.join(map(repr, KINDS))} or a prior, but it was {covariance!r}."
            )
        self.covariance_kind: str = covariance if isinstance(covariance, str) else "full"
        self._spread = "sd" if dim == 1 else "covariance" if self.covariance_kind == "full" else "variance"
        given = {"sd": sd, "variance": variance, "covariance": None if isinstance(covariance, str) else covariance}
        for name, prior in given.items():
            if prior is not None and name != self._spread:
                kind = "of one feature" if dim == 1 else f"with {self.covariance_kind} covariance"
                raise ModelError(f"A Gaussian {kind} has no parameter '{name}': give the prior as {self._spread}=.")
        super().__init__(dim, vector=True, **{"mean": mean, self._spread: given[self._spread]})

    @property
    def regions(self) -> dict[str, Any]:  # type: ignore[override]
        return {"mean": constraints.real, self._spread: REGIONS[self._spread]}

    @property
    def has_full_covariance(self) -> bool:  # type: ignore[override]
        return self._spread == "covariance"

    @property
    def factorises(self) -> bool:
        return not self.has_full_covariance

    @property
    def _shared(self) -> bool:
        """Whether all features have one variance."""
        return self._dim == 1 or self.covariance_kind == "spherical"

    def options(self) -> dict[str, Any]:
        return {"dim": self._dim} if self._dim == 1 else {"dim": self._dim, "covariance": self.covariance_kind}

    def tails(self) -> dict[str, tuple[int, ...]]:
        if self.has_full_covariance:
            return {"mean": (self._dim,), "covariance": (self._dim, self._dim)}
        return {"mean": () if self._dim == 1 else (self._dim,), self._spread: () if self._shared else (self._dim,)}

    # -- the data ------------------------------------------------------------------------------------------------

    @classmethod
    def from_data(cls, data: Sequences, **priors: Any) -> Emission:
        kind = "diagonal" if "variance" in priors or data.dim > MOST_FULL else "full"
        return cls(**{"dim": data.dim, "covariance": kind, **priors})

    @classmethod
    def suits(cls, sample: Sample) -> Suit:
        if not sample.whole:
            hint = "; with outliers, try --emission student-t" if sample.dim == 1 else ""
            return Suit(0, f"the values are real numbers{hint}")
        if sample.known.min() < 0:
            return Suit(0, "the values are whole numbers of both signs, like those of a converter")
        return Suit(0, "the values are whole numbers too large or too alike for counts")

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        mean = dist.Normal(self.per_feature(summary.centre), self.per_feature(summary.spread))
        guess = VARIANCE_SHARE * summary.sd**2
        if self.has_full_covariance:
            scatter = dist.InverseWishart(self._dim + 2.0, scale_tril=np.diag(np.sqrt(guess)))
            return {"mean": mean, "covariance": scatter}
        family = RootInverseGamma if self._spread == "sd" else dist.InverseGamma
        return {"mean": mean, self._spread: family(1.5, 0.5 * float(guess.mean()) if self._shared else 0.5 * guess)}

    # -- densities and draws -------------------------------------------------------------------------------------

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        if self.has_full_covariance:
            return full_log_density(jnp.asarray(params["mean"]), jnp.asarray(params["covariance"]), y)
        return jnp.sum(self._feature_log_density(params, y), -1)

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        observed = jnp.asarray(rows.observed)
        filled = jnp.where(observed, jnp.asarray(rows.values), 0)
        if self.has_full_covariance:
            mean, covariance = jnp.asarray(params["mean"]), jnp.asarray(params["covariance"])
            return marginal_log_density(mean, covariance, filled, observed)
        return jnp.sum(jnp.where(observed[..., None, :], self._feature_log_density(params, filled), 0), -1)

    def _feature_log_density(self, params: Params, y: jax.Array) -> jax.Array:
        inverse_sd = 1.0 / self.sds(params)
        z = (y[..., None, :] - self.means(params)) * inverse_sd
        return jnp.add(-0.5 * z * z, jnp.log(inverse_sd) - 0.5 * LOG_2PI)

    def means(self, params: Params) -> jax.Array:
        mean = jnp.asarray(params["mean"])
        return mean.reshape(mean.shape[0], self._dim)

    def sds(self, params: Params) -> jax.Array:
        """The standard deviation of every feature in every state, `(K, D)`."""
        spread = jnp.asarray(params[self._spread])
        if self.has_full_covariance:
            return jnp.sqrt(jnp.diagonal(spread, axis1=-2, axis2=-1))
        by_feature = jnp.broadcast_to(spread.reshape(spread.shape[0], -1), (spread.shape[0], self._dim))
        return by_feature if self._spread == "sd" else jnp.sqrt(by_feature)

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        below = ndtr((values[:, None, :] - self.means(params)) / self.sds(params))
        return below, below

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        mean = self.means(params)
        noise = jax.random.normal(key, (states.shape[0], self._dim), mean.dtype)
        if not self.has_full_covariance:
            return mean[states] + noise * self.sds(params)[states]
        factor = jnp.linalg.cholesky(params["covariance"])
        # A sum over a broadcast product: one fused loop, where a batch of tiny matrix products is slow.
        return mean[states] + jnp.sum(factor[states] * noise[:, None, :], -1)

    # -- exponential family: s(y) = (y, y_i y_j for i <= j), or (y, y_i^2), or (y, sum_i y_i^2) -----------------------

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        if self.has_full_covariance:
            rows, columns = np.triu_indices(self._dim)
            return jnp.concatenate([y, y[..., rows] * y[..., columns]], -1)
        return jnp.concatenate([y, jnp.sum(y * y, -1, keepdims=True) if self._shared else y * y], -1)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        mean = self.means(params)
        if self.has_full_covariance:
            covariance = jnp.asarray(params["covariance"])
            precision = jnp.linalg.inv(covariance)
            linear = jnp.einsum("kij,kj->ki", precision, mean)
            rows, columns = np.triu_indices(self._dim)
            quadratic = -precision[:, rows, columns] * np.where(rows == columns, 0.5, 1.0).astype(mean.dtype)
            log_det = jnp.linalg.slogdet(covariance)[1]
        else:
            variance = self.sds(params) ** 2
            linear = mean / variance
            quadratic = -0.5 / (variance[:, :1] if self._shared else variance)
            log_det = jnp.sum(jnp.log(variance), -1)
        log_normaliser = 0.5 * (jnp.sum(linear * mean, -1) + log_det + self._dim * LOG_2PI)
        return jnp.concatenate([linear, quadratic], -1), log_normaliser

    def centre(self, params: Params) -> Any:
        """The middle of the means: sums of squares of numbers near 10^6 leave no digits for a variance of 1."""
        return (params["mean"].sum(0) / params["mean"].shape[0]).reshape(self._dim)

    def recentred(self, params: Params, centre: Any) -> dict[str, Any]:
        return {**params, "mean": params["mean"] - centre}

    # -- kernels and closed forms --------------------------------------------------------------------------------

    @property
    def lowering(self) -> GaussianLowering:
        return _Lowering(self)

    def conjugate(self, n_levels: int, centre: Any) -> Conjugate | None:
        table = self.parameters(n_levels)
        improper = self._spread == "variance" and is_flat(table["variance"])
        return None if improper else NormalUpdates.find(table, centre)

    def mode(self, n_levels: int, sums: Sums, *, start: Params | None, prior: bool) -> dict[str, np.ndarray] | None:
        table = self.parameters(n_levels)
        if type(self) is not Gaussian or not all(parameter.is_free for parameter in table.values()):
            return None
        updates = NormalUpdates.find(table, sums.centre, prior=prior)
        return None if updates is None else updates.mode(sums, start)

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        centre = np.mean([group.mean(axis=0) for group in groups], axis=0)
        with jax.enable_x64(True):
            statistics = [np.asarray(self.sufficient_statistics(group - centre)).sum(axis=0) for group in groups]
        counts = np.array([len(group) for group in groups], np.float64)
        return self.mode(len(groups), Sums(np.stack(statistics), counts, centre), start=None, prior=True)


class _Lowering(GaussianLowering):
    emission: Gaussian

    def features(self, params: Params) -> tuple[jax.Array, jax.Array]:
        return self.emission.means(params), self.emission.sds(params)

    def whitened(self, params: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
        if not self.emission.has_full_covariance:
            return super().whitened(params)
        triangle = whitening(jnp.asarray(params["covariance"]))
        constant = log_det_of(triangle, self.width) - 0.5 * self.width * LOG_2PI
        return jnp.asarray(params["mean"]), triangle, constant

    def expected_log_density(self, params: Params, at: Params, sums: jax.Array) -> jax.Array:
        if not self.emission.has_full_covariance:
            return super().expected_log_density(params, at, sums)
        dim, move = self.width, params["mean"] - jax.lax.stop_gradient(at["mean"])
        count, first, second = sums[:, 0], sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
        square = np.zeros((dim, dim), np.int32)
        square[np.triu_indices(dim)] = np.arange(dim * (dim + 1) // 2)
        cross = first[:, :, None] * move[:, None, :]
        moments = second[:, np.maximum(square, square.T)] - cross - jnp.swapaxes(cross, 1, 2)
        moments = moments + count[:, None, None] * move[:, :, None] * move[:, None, :]
        return jnp.sum(scatter_density(params["covariance"], moments, count))

    def second_moments(self, products: np.ndarray) -> np.ndarray:
        if self.emission.has_full_covariance:
            return products
        squares = super().second_moments(products)
        return squares.sum(axis=1, keepdims=True) if self.emission._shared else squares
