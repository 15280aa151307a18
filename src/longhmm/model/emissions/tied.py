"""States that share the parameters of one level, as in recordings where several states have the same current."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.emissions.base import Emission
from longhmm.model.lowering import Lowering
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
        integers = numbers.ndim == 1 and numbers.size > 0 and numbers.dtype.kind in "iu"
        if not integers or set(numbers.tolist()) != set(range(int(numbers.max()) + 1)):
            raise ModelError(
                f"levels must be one integer per state, numbered from 0 without gaps, such as (0, 0, 1), "
                f"but it was {levels!r}."
            )
        self._wrap(emission, tuple(int(level) for level in numbers))

    def _wrap(self, emission: Emission, levels: tuple[int, ...]) -> None:
        self.emission, self.levels, self._of_state = emission, levels, np.array(levels)
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

    @property
    def specifications(self) -> dict[str, Any]:
        """None of its own: they are those of the emission that it holds."""
        return {}

    def state_levels(self, n_states: int) -> np.ndarray:
        return self._of_state

    def options(self) -> dict[str, Any]:
        return {"emission": self.emission, "levels": list(self.levels)}

    def __repr__(self) -> str:
        return f"Tied({self.emission!r}, levels={self.levels})"

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

    def sample_prior(self, key: jax.Array, n_states: int) -> dict[str, Any]:
        self.parameters(n_states)
        return self.emission.sample_prior(key, self.n_levels)

    # -- of states, from those of levels ---------------------------------------------------------------------------

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        return self.emission.log_density(params, y)[..., self._of_state]

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        logs = self.emission.log_likelihoods(params, rows)[..., self._of_state]
        return logs[..., self._of_state, :] if self.couples else logs

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.emission.sample(key, params, jnp.asarray(self.levels)[states])

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, lags: Any, covariates: Any) -> jax.Array:
        return self.emission.sample_after(key, params, jnp.asarray(self.levels)[states], lags, covariates)

    def means(self, params: Params) -> jax.Array:
        return self.emission.means(params)[self._of_state]

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        found = self.emission.cdf(params, values)
        return found and (found[0][:, self._of_state], found[1][:, self._of_state])

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        found = self.emission.cdf_of_rows(params, rows)
        return found and (found[0][:, self._of_state], found[1][:, self._of_state])

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array] | None:
        natural = self.emission.natural_parameters(params)
        return natural and (natural[0][self._of_state], natural[1][self._of_state])

    @property
    def lowering(self) -> TiedLowering | None:
        return None if self.emission.lowering is None else TiedLowering(self, self.emission.lowering)


def _of_the_emission(name: str) -> Any:
    return property(lambda self: getattr(self.emission, name))


for each in ("name", "factorises", "has_full_covariance", "lags", "couples", "is_exponential_family"):
    setattr(Tied, each, _of_the_emission(each))
for each in ("log_prior", "check", "fill", "sufficient_statistics", "log_base_measure", "centre", "recentred"):
    setattr(Tied, each, _of_the_emission(each))


class TiedLowering(Lowering):
    """The lowering of an emission whose parameters are stacked over levels."""

    def __init__(self, tied: Tied, inner: Lowering) -> None:
        super().__init__(tied, inner.width, inner.pack, inner.sums)
        self.kind, self._inner, self._levels = inner.kind, inner, tied._of_state
        for same in ("rows_are_values", "has_base_measure", "partial_rows", "observed_numbers", "log_base_measure"):
            setattr(self, same, getattr(inner, same))

    def natural(self, params: Any) -> jax.Array:
        return self._inner.natural(params)[self._levels]

    def gradient(self, params: Any, sums: jax.Array) -> dict[str, jax.Array]:
        shape = (int(self._levels.max()) + 1, sums.shape[1])
        return self._inner.gradient(params, jnp.zeros(shape, sums.dtype).at[self._levels].add(sums))

    def expected_statistics(self, params: Any, sums: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        of_states = {name: params[name][self._levels] for name in self.emission.names}
        return self._inner.expected_statistics(of_states, sums, centre)
