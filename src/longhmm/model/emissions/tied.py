"""States that share the parameters of one level, as in recordings where several states have the same current."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.emissions.base import Emission
from longhmm.model.lowering import TiedLowering
from longhmm.model.parameters import Parameter, Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


@EMISSIONS.register("tied")
class Tied(Emission):
    """State k emits like level `levels[k]` of `emission`.

    Parameters are stacked over levels, not over states: `Tied(Gaussian(), levels=(0, 0, 1))` has three states and two
    means. Levels are numbered from 0 without gaps.
    """

    def __init__(self, emission: Emission, levels: Sequence[int]) -> None:
        if not isinstance(emission, Emission) or isinstance(emission, Tied):
            raise ModelError(f"Tied needs an emission that is not tied itself, but it was given {emission!r}.")
        numbers = np.asarray(levels)
        if (
            numbers.ndim != 1
            or numbers.size == 0
            or numbers.dtype.kind not in "iu"
            or set(numbers.tolist()) != set(range(int(numbers.max()) + 1))
        ):
            raise ModelError(
                f"levels must be one integer per state, numbered from 0 without gaps, such as (0, 0, 1), "
                f"but it was {levels!r}."
            )
        self._wrap(emission, tuple(int(level) for level in numbers))

    def _wrap(self, emission: Emission, levels: tuple[int, ...]) -> None:
        self.emission, self.levels = emission, levels
        self._describe(emission.dim, emission._specs, vector=emission._vector)
        self.support = emission.support

    def held(self) -> dict[str, Any]:
        return {"emission": self.emission, "levels": self.levels}

    @classmethod
    def made_of(cls, parts: dict[str, Any]) -> Tied:
        tied = object.__new__(cls)
        tied._wrap(**parts)
        return tied

    @property
    def untied(self) -> Emission:
        return self.emission

    @property
    def n_levels(self) -> int:
        """Number of distinct sets of parameters."""
        return max(self.levels) + 1

    def state_levels(self, n_states: int) -> np.ndarray:
        return np.array(self.levels)

    @property
    def name(self) -> str:
        return self.emission.name

    @property
    def factorises(self) -> bool:
        return self.emission.factorises

    @property
    def has_full_covariance(self) -> bool:
        return self.emission.has_full_covariance

    @property
    def specifications(self) -> dict[str, Any]:
        """None of its own: they are those of the emission that it holds."""
        return {}

    def options(self) -> dict[str, Any]:
        return {"emission": self.emission, "levels": list(self.levels)}

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        return ("level", *self.emission.axes(name, self.n_levels)[1:])

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        if n_states != len(self.levels):
            raise ModelError(
                f"levels has {len(self.levels)} entries, one per state, but the model has {n_states} "
                "states: give one level for every state."
            )
        return self.emission.parameters(self.n_levels)

    def states_differ(self, n_states: int) -> bool:
        """States on different levels are not exchangeable: relabelling must leave tied models alone."""
        return True

    def resolve(self, summary: DataSummary) -> Emission:
        return self if self.is_resolved else Tied(self.emission.resolve(summary), self.levels)

    def __repr__(self) -> str:
        return f"Tied({self.emission!r}, levels={self.levels})"

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        return self.emission.log_density(params, y)[..., np.array(self.levels)]

    def log_density_missing(
        self, params: Params, y: jax.Array, observed: jax.Array, *, partial: bool = True
    ) -> jax.Array:
        values = self.emission.log_density_missing(params, y, observed, partial=partial)
        return values[..., np.array(self.levels)]

    @property
    def lags(self) -> int:  # type: ignore[override]
        return self.emission.lags

    @property
    def couples(self) -> bool:  # type: ignore[override]
        return self.emission.couples

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        logs, levels = self.emission.log_likelihoods(params, rows), np.array(self.levels)
        return logs[..., levels, :][..., levels] if self.couples else logs[..., levels]

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, lags: Any, covariates: Any) -> jax.Array:
        return self.emission.sample_after(key, params, jnp.asarray(self.levels)[states], lags, covariates)

    def log_prior(self, params: Params) -> jax.Array:
        return self.emission.log_prior(params)

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.emission.sample(key, params, jnp.asarray(self.levels)[states])

    def sample_prior(self, key: jax.Array, n_states: int) -> dict[str, Any]:
        self.parameters(n_states)
        return self.emission.sample_prior(key, self.n_levels)

    def means(self, params: Params) -> jax.Array:
        return self.emission.means(params)[np.array(self.levels)]

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        found, levels = self.emission.cdf(params, values), np.array(self.levels)
        return None if found is None else (found[0][:, levels], found[1][:, levels])

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        found, levels = self.emission.cdf_of_rows(params, rows), np.array(self.levels)
        return None if found is None else (found[0][:, levels], found[1][:, levels])

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        self.emission.check(values, observed, describe)

    def fill(self, dtype: Any) -> jax.Array:
        return self.emission.fill(dtype)

    @property
    def is_exponential_family(self) -> bool:
        return self.emission.is_exponential_family

    def sufficient_statistics(self, y: jax.Array) -> jax.Array | None:
        return self.emission.sufficient_statistics(y)

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array] | None:
        natural = self.emission.natural_parameters(params)
        levels = np.array(self.levels)
        return None if natural is None else (natural[0][levels], natural[1][levels])

    def log_base_measure(self, y: jax.Array) -> jax.Array | None:
        return self.emission.log_base_measure(y)

    def centre(self, params: Params) -> Any:
        return self.emission.centre(params)

    def recentred(self, params: Params, centre: Any) -> dict[str, Any]:
        return self.emission.recentred(params, centre)

    @property
    def lowering(self) -> TiedLowering | None:
        inner = self.emission.lowering
        return None if inner is None else TiedLowering(self, inner, np.array(self.levels))
