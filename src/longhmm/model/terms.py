"""Linear terms: the columns of a formula among the covariates of a model, with coefficients of natural and of standard
columns.

`b_0 + sum_c b_c x_c` is told by natural coefficients `(..., 1 + C)`, the intercept first. Coordinates and priors are
those of standard ones: the sum where all columns have their means, then what a column adds for each of its scales.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution

from longhmm.errors import ModelError
from longhmm.model.parameters import Parameter, Tree, prior_of, specification

SMOOTHER = 0.25  # scale of the coefficients of a smooth term, in standard deviations of a slope
_SMOOTH, _NUMBER = re.compile(r"(?:^|:)s\(.*\)\[\d+\]"), re.compile(r"\)\[\d+\]")


class Terms(Tree):
    """Columns by name, where they stand among all covariates `(..., n_covariates)`, their means and scales."""

    def __init__(
        self, columns: tuple[str, ...] = (), centre: Any = (), spread: Any = (), own: Any = (), n_covariates: int = 0
    ) -> None:
        self.columns, self.own = tuple(map(str, columns)), tuple(map(int, own))
        self.centre, self.spread = np.array(centre, np.float64), np.array(spread, np.float64)
        self.n_covariates = int(n_covariates) or len(self.columns)

    @classmethod
    def numbered(cls, count: int) -> Terms:
        """Columns of an array, before they have been seen."""
        return cls(tuple(f"x{index}" for index in range(count)), np.zeros(count), np.ones(count), range(count))

    @classmethod
    def among(cls, columns: tuple[str, ...], every: tuple[str, ...], seen: np.ndarray) -> Terms:
        """Some of the columns `every`, whose values `(n, C)` have been `seen`."""
        own = tuple(every.index(column) for column in columns)
        values = seen[:, list(own)]
        spread = values.std(axis=0)
        constant = spread <= 1e-12 * np.abs(values).max(axis=0, initial=0.0)
        if constant.any():
            raise ModelError(
                f"The covariate {columns[int(np.argmax(constant))]!r} must vary, but it is the same in every row."
            )
        found = cls(columns, values.mean(axis=0), spread, own, len(every))
        for group in map(list, found.groups):  # columns whose coefficients share a variance have one scale
            found.spread[group] = np.sqrt(np.sum(spread[group] ** 2))
        return found

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Columns of one smooth term, or of one random effect, whose coefficients share a variance."""
        found: dict[str, list[int]] = {}
        for index, column in enumerate(self.columns):
            if _SMOOTH.search(column):
                found.setdefault(_NUMBER.sub(")[]", column), []).append(index)
        return tuple(map(tuple, found.values()))

    @cached_property
    def _alone(self) -> np.ndarray:
        joined = [index for group in self.groups for index in group]
        return np.setdiff1d(np.arange(len(self.columns)), joined)

    def check_slope(self, slope: Distribution | None) -> None:
        """Refuse a prior without a standard deviation where smooth terms take their scale from it."""
        if self.groups and slope is not None and not has_variance(slope):
            raise ModelError(f"slope must have a standard deviation where formulas have smooth terms, got {slope!r}.")

    @property
    def labels(self) -> tuple[str, ...]:
        """What coefficients belong to."""
        return ("Intercept", *self.columns)

    def options(self) -> dict[str, Any]:
        """Plain values that rebuild it."""
        found = {"centre": self.centre.tolist(), "spread": self.spread.tolist(), "own": list(self.own)}
        return {**found, "columns": list(self.columns), "n_covariates": self.n_covariates}

    @classmethod
    def rebuilt(cls, options: Mapping[str, Any]) -> Terms:
        return cls(**{name: options[name] for name in ("columns", "centre", "spread", "own", "n_covariates")})

    def at_means(self, coefficients: jax.Array) -> jax.Array:
        """`(...)`, the sum where all columns have their means."""
        return coefficients[..., 0] + jnp.sum(coefficients[..., 1:] * self._like(self.centre, coefficients), axis=-1)

    def sums(self, coefficients: jax.Array, covariates: Any) -> jax.Array:
        """`(*rows, ...)`, of rows with covariates `(*rows, C)`, counted from the means, which leaves more digits."""
        given = jnp.asarray(covariates)
        own = given if self.own == tuple(range(given.shape[-1])) else given[..., list(self.own)]
        shift = own.astype(coefficients.dtype) - self._like(self.centre, coefficients)
        slopes = coefficients[..., 1:]
        return self.at_means(coefficients) + jnp.tensordot(shift, slopes, [[-1], [-1]], precision="highest")

    def standard(self, coefficients: jax.Array) -> jax.Array:
        """Natural coefficients to standard ones."""
        slopes = coefficients[..., 1:] * self._like(self.spread, coefficients)
        return jnp.concatenate([self.at_means(coefficients)[..., None], slopes], axis=-1)

    def natural(self, standard: jax.Array) -> jax.Array:
        """Standard coefficients to natural ones."""
        slopes = standard[..., 1:] / self._like(self.spread, standard)
        shift = jnp.sum(slopes * self._like(self.centre, standard), axis=-1, keepdims=True)
        return jnp.concatenate([standard[..., :1] - shift, slopes], axis=-1)

    def log_volume(self, dtype: Any) -> jax.Array:
        """Log volume of the map from standard to natural coefficients."""
        return -jnp.sum(jnp.log(jnp.asarray(self.spread, dtype)))

    def log_prior(self, slope: Distribution, standard: jax.Array) -> jax.Array:
        """`(...)`, log density of standard slopes `(..., C)`: each has the prior `slope`, but those of a group are
        normal with a common variance, inverse gamma with shape 1/2 and scale `(sd / 4)^2 / 2`, of which the sd of
        `slope` is the sd. The variance is integrated out, which leaves a Cauchy distribution of many dimensions."""
        total = jnp.sum(slope.log_prob(standard[..., self._alone]), axis=-1)
        for group in self.groups:
            scale, size = self._scale(slope), len(group)
            square = jnp.sum(standard[..., list(group)] ** 2, axis=-1) / scale**2
            constant = gammaln(0.5 * (1 + size)) - gammaln(0.5) - 0.5 * size * np.log(np.pi)
            total = total + constant - size * jnp.log(scale) - 0.5 * (1 + size) * jnp.log1p(square)
        return total

    def draw(self, key: jax.Array, slope: Distribution, shape: tuple[int, ...]) -> jax.Array:
        """Standard slopes `(*shape, C)` from their prior."""
        alone, joined, variance = jax.random.split(key, 3)
        found: jax.Array = slope.expand((*shape, len(self.columns))).sample(alone)
        for index, group in enumerate(self.groups):
            normal = jax.random.normal(jax.random.fold_in(joined, index), (*shape, len(group)))
            inverse = jnp.abs(jax.random.normal(jax.random.fold_in(variance, index), shape))[..., None]
            own = jnp.asarray(self._scale(slope))[..., None] * normal / inverse
            found = found.at[..., list(group)].set(own)
        return found

    @staticmethod
    def _scale(slope: Distribution) -> Any:
        """`(...)`, of the coefficients of a group."""
        scale = SMOOTHER * jnp.sqrt(slope.variance)
        return scale[..., 0] if jnp.ndim(scale) else scale

    @staticmethod
    def _like(numbers: Any, given: jax.Array) -> jax.Array:
        return jnp.asarray(numbers, given.dtype)


def one_prior(name: str, given: Any) -> Distribution:
    """One prior for all coefficients, or a refusal."""
    prior = specification(name, given)
    if not isinstance(prior, Distribution) or prior.batch_shape or prior.event_shape:
        raise ModelError(f"{name} must be one prior for all coefficients, such as Normal(0, 1), got {given!r}.")
    return prior


def in_precision(prior: Distribution) -> Distribution:
    """A prior in the precision of the current scope."""
    return prior_of(Parameter("coefficients", (), prior, None, None))


def has_variance(prior: Distribution) -> bool:
    try:
        return bool(np.all(np.isfinite(prior.variance)))
    except (NotImplementedError, AttributeError, TypeError):
        return False
