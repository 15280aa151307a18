"""States that share the parameters of one level, as in recordings where several states have the same current."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError
from longhmm.model.emissions import Emission
from longhmm.model.parameter import Parameter, Params
from longhmm.model.summary import DataSummary


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
        self.emission = emission
        self.levels: tuple[int, ...] = tuple(int(level) for level in numbers)
        self._dim = emission.dim
        self._specs = emission._specs
        self._distribution = emission._distribution
        self._vector = emission._vector
        self._support_by_state = emission._support_by_state
        self.support = emission.support

    @property
    def n_levels(self) -> int:
        """Number of distinct sets of parameters."""
        return max(self.levels) + 1

    @property
    def name(self) -> str:
        return self.emission.name

    @property
    def vector_valued(self) -> bool:
        return self.emission.vector_valued

    @property
    def factorises(self) -> bool:
        return self.emission.factorises

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

    @property
    def is_resolved(self) -> bool:
        return self.emission.is_resolved

    def __repr__(self) -> str:
        return f"Tied({self.emission!r}, levels={self.levels})"

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        return self.emission.log_density(params, y)[..., np.array(self.levels)]

    def log_density_missing(
        self, params: Params, y: jax.Array, observed: jax.Array, *, partial: bool = True
    ) -> jax.Array:
        values = self.emission.log_density_missing(params, y, observed, partial=partial)
        return values[..., np.array(self.levels)]

    def log_prior(self, params: Params) -> jax.Array:
        return self.emission.log_prior(params)

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.emission.sample(key, params, jnp.asarray(self.levels)[states])

    def sample_prior(self, key: jax.Array, n_states: int) -> dict[str, Any]:
        self.parameters(n_states)
        return self.emission.sample_prior(key, self.n_levels)

    def location(self, params: Params) -> jax.Array:
        return self.emission.location(params)[np.array(self.levels)]

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        self.emission.check(values, observed, describe)

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
