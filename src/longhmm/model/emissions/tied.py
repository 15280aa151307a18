"""States that share the parameters of one level, as in recordings where several states have the same current."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.emissions import Before, Emission
from longhmm.model.lowering import Lowering
from longhmm.model.made_of import like_its_emission
from longhmm.model.parameters import Parameter, Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary


@EMISSIONS.register("tied", offered=False)
@like_its_emission("specifications", "has_full_covariance", "log_prior", "centre")
class Tied(Emission):
    """State k emits like level `levels[k]` of `emission`.

    Parameters are stacked over levels, not over states: `Tied(Gaussian(), levels=(0, 0, 1))` has three states and two
    means. Levels are numbered from 0 without gaps.
    """

    _density = None

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
        self.emission, self.levels = emission, tuple(int(level) for level in numbers)

    @cached_property
    def _of_state(self) -> np.ndarray:
        return np.array(self.levels)

    @property
    def untied(self) -> Emission:
        return self.emission

    def state_levels(self, n_states: int) -> np.ndarray:
        return self._of_state

    def options(self) -> dict[str, Any]:
        return {"emission": self.emission, "levels": list(self.levels)}

    def __repr__(self) -> str:
        return f"Tied({self.emission!r}, levels={self.levels})"

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        return ("level", *self.emission.axes(name, max(self.levels) + 1)[1:])

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        if n_states != len(self.levels):
            raise ModelError(
                f"levels has {len(self.levels)} entries, one per state, but the model has {n_states} "
                "states: give one level for every state."
            )
        return self.emission.parameters(max(self.levels) + 1)

    def states_differ(self, n_states: int) -> bool:
        return self.emission.states_differ(max(self.levels) + 1)

    def resolve(self, summary: DataSummary) -> Emission:
        return self if self.is_resolved else Tied(self.emission.resolve(summary), self.levels)

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        logs = self.emission.log_likelihoods(params, rows)[..., self._of_state]
        return logs[..., self._of_state, :] if self.couples else logs

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.emission.sample(key, params, jnp.asarray(self.levels)[states])

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        levels = jnp.asarray(self.levels)
        return self.emission.sample_after(key, params, levels[states], before._replace(states=levels[before.states]))

    @property
    def lowering(self) -> TiedLowering | None:
        return None if self.emission.lowering is None else TiedLowering(self, self.emission.lowering)


def _of_states(name: str, axis: int) -> Any:
    @wraps(getattr(Emission, name))
    def method(self: Tied, *args: Any) -> Any:
        found = getattr(self.emission, name)(*args)
        taken = {id(each): jnp.take(each, self._of_state, axis) for each in jax.tree.leaves(found)}
        return jax.tree.map(lambda each: taken[id(each)], found)  # what is one array twice stays that

    return method


for each, axis in {"log_density": -1, "means": 0, "cdf": 1, "cdf_of_rows": 1}.items():
    setattr(Tied, each, _of_states(each, axis))


class TiedLowering(Lowering):
    """The lowering of an emission whose parameters are stacked over levels."""

    def __init__(self, tied: Tied, inner: Lowering) -> None:
        super().__init__(tied, inner.width, inner.pack, inner.sums)
        self.kind, self._inner, self._levels = inner.kind, inner, tied._of_state
        self.terms = inner.terms
        for same in ("rows_are_values", "has_base_measure", "partial_rows", "sufficient", "rows", "log_base_measure"):
            setattr(self, same, getattr(inner, same))

    def natural(self, params: Any) -> jax.Array:
        return self._inner.natural(params)[self._levels]

    def expected_log_density(self, params: Any, at: Any, sums: jax.Array) -> jax.Array:
        shape = (int(self._levels.max()) + 1, sums.shape[1])
        return self._inner.expected_log_density(params, at, jnp.zeros(shape, sums.dtype).at[self._levels].add(sums))
