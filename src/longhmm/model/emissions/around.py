"""Emissions around another one, which change what rows are or what parameters are, and leave the rest to it."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import numpy as np

from longhmm.model.emissions import Emission
from longhmm.model.memory import Memory
from longhmm.model.parameters import Params
from longhmm.model.summary import DataSummary


class Around(Emission):
    """Holds an `emission`, and what it changes about it under the name `changes`."""

    _density = None
    emission: Emission
    changes: ClassVar[str]

    def _with(self, emission: Emission, changed: Any = None) -> Self:
        """The same around another emission, and with another change if one is given."""
        found = object.__new__(type(self))
        found.emission = emission
        setattr(found, self.changes, getattr(self, self.changes) if changed is None else changed)
        return found

    def _on(self, emission: Emission) -> Self:
        return self if emission is self.emission else self._with(emission)

    def resolve(self, summary: DataSummary) -> Emission:
        inner = self.emission
        return self._on(inner if inner.is_resolved else inner.resolve(summary))

    def beside(self, transitions: Any) -> Self:
        return self._on(self.emission.beside(transitions))

    def memory(self, n_states: int) -> Memory | None:
        return self.emission.memory(n_states)

    def unfolded(self, n_states: int) -> Self:
        """Around the emission of states that remember."""
        inner: Any = self.emission
        return self._on(inner.unfolded(n_states))

    @property
    def untied(self) -> Emission:
        return self._on(self.emission.untied)

    def states_differ(self, n_states: int) -> bool:
        return self.emission.states_differ(n_states)

    def state_levels(self, n_states: int) -> np.ndarray:
        return self.emission.state_levels(n_states)

    def log_prior(self, params: Params) -> jax.Array:
        inner = self.untied  # whose parameters are stacked over levels
        return super().log_prior(params) if inner is self else inner.log_prior(params)

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.emission.sample(key, params, states)
