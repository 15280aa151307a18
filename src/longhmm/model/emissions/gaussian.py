"""Gaussian emissions with full, diagonal or spherical covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.conjugate import RootInverseGamma, is_flat
from longhmm.model.covariance import LOG_2PI, marginal_log_density
from longhmm.model.densities import ndtr
from longhmm.model.emissions import Emission
from longhmm.model.emissions.family import Family
from longhmm.model.lowering import GaussianLowering
from longhmm.model.noise import LAGS, with_lags, with_noise
from longhmm.model.normal_updates import NormalUpdates
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences

KINDS = ("full", "diagonal", "spherical")
# States usually share the spread of all the data between them, so one state's variance is guessed at a tenth of it.
VARIANCE_SHARE = 0.1
REGIONS = {"sd": constraints.positive, "variance": constraints.positive, "covariance": constraints.positive_definite}
MOST_FULL = 16  # features whose covariances are all estimated by default; with more, each has only a variance
# In one program, and unchecked, since it is right by construction: else every step would be a program of its own.
_scatter = jax.jit(lambda freedom, factor: dist.InverseWishart(freedom, scale_tril=factor, validate_args=False))


@EMISSIONS.register("gaussian")
class Gaussian(Family):
    """y | x = k is normal. One feature has `mean (K,)` and `sd (K,)`; several have `mean (K, D)` and

    - "full": `covariance (K, D, D)`,
    - "diagonal": `variance (K, D)`, one per feature,
    - "spherical": `variance (K,)`, the same for all features.

    The argument `covariance` is one of these words, or a prior or fixed value of the full covariance; with one feature
    it says nothing. `noise` (`ARNoise`, `MANoise`) and `response` (`StepResponse`) make it `Coloured`.

    Default priors: the mean is normal around the middle of the data with their range as standard deviation; the
    covariance is inverse Wishart with D + 2 degrees of freedom (a variance, and the square of `sd`: inverse gamma with
    shape 3/2) whose mean is a tenth of the variance of the data.
    """

    otherwise, mean_name = ("coloured", ("noise", "response")), "mean"
    takes_response = True

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
        return self.dim == 1 or self.covariance_kind == "spherical"

    def options(self) -> dict[str, Any]:
        return {"dim": self.dim} if self.dim == 1 else {"dim": self.dim, "covariance": self.covariance_kind}

    def tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
        if self.has_full_covariance:
            return {"mean": (self.dim,), "covariance": (self.dim, self.dim)}
        return {"mean": () if self.dim == 1 else (self.dim,), self._spread: () if self._shared else (self.dim,)}

    @classmethod
    def from_data(cls, data: Sequences, **priors: Any) -> Emission:
        kind = "diagonal" if "variance" in priors or data.dim > MOST_FULL else "full"
        return cls(**{"dim": data.dim, "covariance": kind, **priors})

    @classmethod
    def suits(cls, summary: DataSummary) -> tuple[int, str]:
        if not summary.whole.all():
            hint = "; with outliers, try --emission student-t" if len(summary.mean) == 1 else ""
            return 0, f"the values are real numbers{hint}"
        if summary.ends.min() < 0:
            return 0, "the values are whole numbers of both signs, like those of a converter"
        return 0, "the values are whole numbers too large or too alike for counts"

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        mean = dist.Normal(self.per_feature(summary.centre), self.per_feature(summary.spread))
        guess = VARIANCE_SHARE * summary.sd**2
        if self.has_full_covariance:
            return {"mean": mean, "covariance": _scatter(self.dim + 2.0, np.diag(np.sqrt(guess)))}
        family = RootInverseGamma if self._spread == "sd" else dist.InverseGamma
        return {"mean": mean, self._spread: family(1.5, 0.5 * float(guess.mean()) if self._shared else 0.5 * guess)}

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        observed = jnp.asarray(rows.observed)
        filled = jnp.where(observed, jnp.asarray(rows.values), 0)
        if self.has_full_covariance:
            mean, covariance = jnp.asarray(params["mean"]), jnp.asarray(params["covariance"])
            return marginal_log_density(mean, covariance, filled, observed)
        inverse_sd = 1.0 / self.sds(params)
        z = (filled[..., None, :] - self.means(params)) * inverse_sd
        features = jnp.add(-0.5 * z * z, jnp.log(inverse_sd) - 0.5 * LOG_2PI)
        return jnp.sum(jnp.where(observed[..., None, :], features, 0), -1)

    def means(self, params: Params) -> jax.Array:
        mean = jnp.asarray(params["mean"])
        return mean.reshape(mean.shape[0], self.dim)

    def sds(self, params: Params) -> jax.Array:
        """The standard deviation of every feature in every state, `(K, D)`."""
        spread = jnp.asarray(params[self._spread])
        if self.has_full_covariance:
            return jnp.sqrt(jnp.diagonal(spread, axis1=-2, axis2=-1))
        by_feature = jnp.broadcast_to(spread.reshape(spread.shape[0], -1), (spread.shape[0], self.dim))
        return by_feature if self._spread == "sd" else jnp.sqrt(by_feature)

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        below = ndtr((values[:, None, :] - self.means(params)) / self.sds(params))
        return below, below

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        mean = self.means(params)
        noise = jax.random.normal(key, (states.shape[0], self.dim), mean.dtype)
        if not self.has_full_covariance:
            return mean[states] + noise * self.sds(params)[states]
        factor = jnp.linalg.cholesky(params["covariance"])
        # A sum over a broadcast product: one fused loop, where a batch of tiny matrix products is slow.
        return mean[states] + jnp.sum(factor[states] * noise[:, None, :], -1)

    def more_noise(self, far: int) -> str:
        if self.dim > 1:
            return with_lags(self.dim, 1)
        return with_noise("ma", far) if far < LAGS else with_noise("ar", 2)

    def centre(self, params: Params) -> Any:
        """The middle of the means: sums of squares of numbers near 10^6 leave no digits for a variance of 1."""
        return (params["mean"].sum(0) / params["mean"].shape[0]).reshape(self.dim)

    @property
    def lowering(self) -> GaussianLowering:
        return GaussianLowering(self, lambda params: (self.means(params), self.sds(params)))

    def conjugate(self, n_levels: int, centre: Any) -> NormalUpdates | None:
        updates = NormalUpdates(self.parameters(n_levels), centre)
        improper = self._spread == "variance" and is_flat(updates.table["variance"])
        return updates if updates.conjugate and not improper else None

    def mode(self, n_levels: int, sums: np.ndarray, at: Params, *, prior: bool) -> dict[str, np.ndarray] | None:
        table = self.parameters(n_levels)
        if type(self) is not Gaussian or not all(parameter.is_free for parameter in table.values()):
            return None
        updates = NormalUpdates(table, np.reshape(at["mean"], (n_levels, self.dim)), prior=prior)
        return updates.mode(sums) if updates.conjugate else None

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        mean, (rows, columns) = np.stack([group.mean(axis=0) for group in groups]), np.triu_indices(self.dim)
        away = [np.insert(group - own, 0, 1.0, axis=1) for group, own in zip(groups, mean, strict=True)]
        sums = [np.concatenate([each, each[:, 1 + rows] * each[:, 1 + columns]], axis=1).sum(axis=0) for each in away]
        return self.mode(len(groups), np.stack(sums), {"mean": mean}, prior=True)
