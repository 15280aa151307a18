"""Autoregression: every state has a linear recursion of its own."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.data.rows import Rows
from longhmm.errors import ModelError, check_whole
from longhmm.model.conjugate import RootInverseGamma
from longhmm.model.covariance import LOG_2PI, log_det_of, scatter_density, whitening
from longhmm.model.densities import ndtr
from longhmm.model.emissions import Before
from longhmm.model.emissions.family import Family
from longhmm.model.emissions.gaussian import REGIONS, VARIANCE_SHARE
from longhmm.model.lowering import GAUSSIAN, Lowering
from longhmm.model.noise import with_lags
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary

DAMPING = 1e-3  # of the level that a recursion tends to, which a random walk does not have


@EMISSIONS.register("ar")
class AR(Family):
    """`y_t = intercept_k + sum_l phi_kl y_{t-l} + e_t` in state k, with `lags` rows l = 1, 2, ... of its own past.

    One feature has `intercept (K,)`, `phi (K, p)` and `sd (K,)`; several have `intercept (K, D)`, `phi (K, p, D, D)`,
    of which `phi[k, l - 1, i, j]` is the weight of feature j, l rows before, in feature i, and `covariance (K, D, D)`.

    The likelihood is conditional: a row says something if it and the `lags` rows before it were observed, all of them
    and whole. So do not the first `lags` rows of a sequence, nor those that follow a missing value.

    Default priors: the intercept is normal around 0, as wide as the data are and lie from 0; weights are normal around
    0 with standard deviation 1 in units of the features' spread; noise as of `Gaussian`.
    """

    def __init__(
        self,
        dim: int = 1,
        *,
        lags: int = 1,
        intercept: Any = None,
        phi: Any = None,
        sd: Any = None,
        covariance: Any = None,
    ) -> None:
        check_whole("lags", lags, 1, ModelError)
        self.lags = int(lags)
        self._spread, other = ("sd", covariance) if dim == 1 else ("covariance", sd)
        if other is not None:
            raise ModelError(f"An AR of {dim} feature(s) has the noise '{self._spread}': give its prior by that name.")
        spread = sd if dim == 1 else covariance
        super().__init__(dim, vector=True, intercept=intercept, phi=phi, **{self._spread: spread})

    @property
    def regions(self) -> dict[str, Any]:  # type: ignore[override]
        return {"intercept": constraints.real, "phi": constraints.real, self._spread: REGIONS[self._spread]}

    def options(self) -> dict[str, Any]:
        return {"dim": self.dim, "lags": self.lags}

    def tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
        vector, matrix = ((), ()) if self.dim == 1 else ((self.dim,), (self.dim, self.dim))
        return {"intercept": vector, "phi": (self.lags, *matrix), self._spread: matrix}

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        if name == "phi":
            return ("state", "lag", "feature", "with_feature")[: 2 if self.dim == 1 else 4]
        return super().axes(name, n_states)

    def more_noise(self, far: int) -> str:
        return with_lags(self.dim, self.lags + 1)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        ratio = summary.sd[:, None] / summary.sd
        intercept = dist.Normal(0.0, self.per_feature(summary.spread + np.abs(summary.centre)))
        phi = dist.Normal(0.0, 1.0 if self.dim == 1 else np.broadcast_to(ratio, (self.lags, *ratio.shape)))
        guess = VARIANCE_SHARE * summary.sd**2
        if self.dim == 1:
            return {"intercept": intercept, "phi": phi, "sd": RootInverseGamma(1.5, 0.5 * float(guess[0]))}
        scatter = dist.InverseWishart(self.dim + 2.0, scale_tril=np.diag(np.sqrt(guess)))
        return {"intercept": intercept, "phi": phi, "covariance": scatter}

    def regression(self, params: Params) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Intercepts `(K, D)`, weights `(K, D, p D)` of all lags, the nearest first, and covariances `(K, D, D)`."""
        phi, spread = jnp.asarray(params["phi"]), jnp.asarray(params[self._spread])
        phi = phi.reshape(-1, self.lags, self.dim, self.dim).transpose(0, 2, 1, 3).reshape(len(phi), self.dim, -1)
        spread = spread if self.dim > 1 else (spread * spread)[:, None, None]
        return self.with_features(params["intercept"]), phi, spread

    def level(self, params: Params, damping: float = DAMPING) -> jax.Array:
        """`(K, D)`, where each recursion tends to: `(I - sum_l phi_l)^-1 intercept`, damped where there is none."""
        intercept, phi, _ = self.regression(params)
        pull = jnp.eye(self.dim) - phi.reshape(len(phi), self.dim, self.lags, self.dim).sum(2)
        across = jnp.swapaxes(pull, 1, 2)
        inverse = jnp.linalg.inv(across @ pull + damping * jnp.eye(self.dim, dtype=phi.dtype))
        return jnp.squeeze(inverse @ across @ intercept[..., None], axis=-1)

    def means(self, params: Params) -> jax.Array:
        return self.level(params)

    def predicted(self, params: Params, lags: jax.Array) -> jax.Array:
        """`(n, K, D)`, the mean of every row in every state, given the rows before it, which are there."""
        intercept, phi, _ = self.regression(params)
        flat = lags.reshape(*lags.shape[:-2], -1)
        return intercept + jnp.sum(phi * flat[..., None, None, :], axis=-1)

    def _before(self, rows: Rows) -> jax.Array:
        return jnp.zeros((*rows.values.shape[:-1], 0, self.dim)) if rows.lags is None else jnp.asarray(rows.lags)

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        y, lags = jnp.asarray(rows.values), self._before(rows)
        known = jnp.all(jnp.asarray(rows.observed), axis=-1) & ~jnp.any(jnp.isnan(lags), axis=(-2, -1))
        y, lags = jnp.where(known[..., None], y, 0), jnp.where(known[..., None, None], lags, 0.0)
        away = y[..., None, :] - self.predicted(params, lags)
        triangle = whitening(self.regression(params)[2])
        square, (row, column) = jnp.zeros(away.shape[:-1], away.dtype), np.tril_indices(self.dim)
        for i in range(self.dim):
            mine = row == i
            square = square + jnp.sum(triangle[:, mine] * away[..., column[mine]], axis=-1) ** 2
        logs = log_det_of(triangle, self.dim) - 0.5 * (self.dim * LOG_2PI + square)
        return jnp.where(known[..., None], logs, 0.0)

    def cdf(self, params: Params, values: jax.Array) -> None:
        """Without the rows before it, none of a row is known."""
        return None

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array]:
        """Given the rows before; a row that says nothing may have any probability below it."""
        lags = self._before(rows)
        known = ~jnp.any(jnp.isnan(lags), axis=(-2, -1))[..., None, None]
        predicted = self.predicted(params, jnp.where(known, lags, 0.0))
        sd = jnp.sqrt(jnp.diagonal(self.regression(params)[2], axis1=1, axis2=2))
        below = ndtr((jnp.asarray(rows.values)[..., None, :] - predicted) / sd)
        return jnp.where(known, below, 0.0), jnp.where(known, below, 1.0)

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        """Rows that are not there are taken to lie at the level of the state."""
        level, covariance = self.level(params)[states][:, None, :], self.regression(params)[2]
        lags = jnp.where(jnp.isnan(before.lags), level, before.lags)
        mean = jnp.take_along_axis(self.predicted(params, lags), states[:, None, None], axis=1)[:, 0]
        noise = jax.random.normal(key, mean.shape, mean.dtype)
        return mean + jnp.sum(jnp.linalg.cholesky(covariance)[states] * noise[:, None, :], axis=-1)

    @cached_property
    def lowering(self) -> ARLowering:
        return ARLowering(self)


class ARLowering(Lowering):
    """A regression as a Gaussian of the row and those before it, `(lags, y)`, of which only the part that belongs to y
    has a say: the rows of the triangle for the lags are 0. Numbers are measured from the level of the state."""

    kind, partial_rows = GAUSSIAN, True
    emission: AR

    def __init__(self, emission: AR) -> None:
        width = emission.dim * (1 + emission.lags)
        size = 1 + width + width * (width + 1) // 2
        super().__init__(emission, width, size, size)

    def rows(self, values: Any, observed: Any, lags: Any = None) -> Any:
        numbers = np if isinstance(values, np.ndarray) else jnp
        if numbers is jnp or not observed.all():  # lags say by themselves what is missing
            values = numbers.where(observed, values, np.nan)
        if lags is None:
            return values
        return numbers.concatenate([lags.reshape(*lags.shape[:-2], -1), values], axis=-1)

    def write(self, found: np.ndarray, values: Any, observed: Any, lags: Any) -> None:
        """Whole columns at a time, since rows are short."""
        before = self.width - self.emission.dim
        found[:, before:] = values if observed.all() else np.where(observed, values, np.nan)
        for column in range(before):
            found[:, column] = lags[:, column // self.emission.dim, column % self.emission.dim]

    def of(self, params: Params) -> AR:
        """The emission whose states the kernel sees."""
        return self.emission

    def _centre(self, params: Params) -> jax.Array:
        """`(K, width)`, from where numbers are measured: any place will do, the level leaves the most digits."""
        emission = self.of(params)
        level, (intercept, phi, _) = emission.level(params), emission.regression(params)
        lags = jnp.tile(level, (1, self.emission.lags))
        return jnp.concatenate([lags, intercept + jnp.sum(phi * lags[:, None, :], axis=-1)], axis=1)

    def natural(self, params: Params) -> jax.Array:
        dim, before = self.emission.dim, self.width - self.emission.dim
        _, phi, covariance = self.of(params).regression(params)
        triangle = whitening(covariance)
        row, column = np.tril_indices(dim)
        square = jnp.zeros_like(covariance).at[:, row, column].set(triangle)
        own = jnp.concatenate([-jnp.sum(square[..., None] * phi[:, None], axis=2), square], axis=2)  # (K, D, width)
        whole = jnp.concatenate([jnp.zeros((len(own), before, self.width), own.dtype), own], axis=1)
        constant = log_det_of(triangle, dim) - 0.5 * dim * LOG_2PI
        return jnp.concatenate(
            [constant[:, None], self._centre(params), whole[:, *np.tril_indices(self.width)]], axis=1
        )

    def expected_log_density(self, params: Params, at: Params, sums: jax.Array) -> jax.Array:
        """Residuals are `B (v - centre) + B centre - intercept` with `B = (-phi, I)`."""
        count, first, second = jnp.split(sums, (1, 1 + self.width), axis=1)
        place = np.zeros((self.width, self.width), np.int32)
        place[np.triu_indices(self.width)] = np.arange(second.shape[1])
        moments = second[:, np.maximum(place, place.T)]
        intercept, phi, covariance = self.of(params).regression(params)
        whole = jnp.concatenate([-phi, jnp.broadcast_to(jnp.eye(self.emission.dim), covariance.shape)], axis=2)
        offset = (whole @ jax.lax.stop_gradient(self._centre(at))[..., None])[..., 0] - intercept
        mean = (whole @ first[..., None])[..., 0]
        cross = mean[:, :, None] * offset[:, None, :]
        scatter = whole @ moments @ jnp.swapaxes(whole, 1, 2) + cross + jnp.swapaxes(cross, 1, 2)
        scatter = scatter + count[..., None] * offset[:, :, None] * offset[:, None, :]
        return jnp.sum(scatter_density(covariance, scatter, count[:, 0]))
