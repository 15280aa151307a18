"""Kinds of distributions of dwell times: the numbers of a state, their coordinates and priors, and what they say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.inference.scaling import safe_log
from longhmm.model.parameters import Parameter, prior_of
from longhmm.model.transitions import hazards
from longhmm.model.transitions.hazards import Steps

LEAST, MOST = 1e-6, 1 - 1e-6  # of hazards: what rounding leaves of them


def _density(priors: Mapping[str, Any], name: str, region: Any, values: jax.Array) -> jax.Array:
    return jnp.sum(prior_of(Parameter(name, (), priors[name], None, region)).log_prob(values))


class Kind:
    """The numbers of S states are `(S, W)` here; of D phases."""

    phases = 20  # unless another number is asked for
    by_state = True  # whether, in a list, those of one state stand together
    repeats = False  # whether every phase may repeat itself, rather than the last one alone
    needs: str  # what numbers must be

    def names(self, phases: int) -> list[str]:
        """`W` names, with a place for the number of the state."""
        raise NotImplementedError

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        raise NotImplementedError

    def unconstrain(self, numbers: jax.Array) -> jax.Array:
        raise NotImplementedError

    def log_jacobian(self, numbers: jax.Array) -> jax.Array:
        raise NotImplementedError

    def log_prior(self, numbers: jax.Array, priors: Mapping[str, Any]) -> jax.Array:
        raise NotImplementedError

    def steps(self, numbers: jax.Array, phases: int) -> Steps:
        """What may happen in every phase of every state."""
        raise NotImplementedError

    def geometric(self, leave: np.ndarray, phases: int) -> np.ndarray:
        """Numbers whose mean dwell times are those of states `(S,)` that are left with these chances."""
        raise NotImplementedError

    def right(self, numbers: np.ndarray) -> bool:
        raise NotImplementedError


class MeanAndShape(Kind):
    """A mean beyond 1, and a shape."""

    by_state, needs = False, "means above 1, positive shapes"

    def __init__(self, steps: Callable[[jax.Array, jax.Array, int], Steps]) -> None:
        self._steps = steps

    def names(self, phases: int) -> list[str]:
        return ["mean {}", "shape {}"]

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        return jnp.exp(coordinates).at[:, 0].add(1.0)

    def unconstrain(self, numbers: jax.Array) -> jax.Array:
        return safe_log(numbers.at[:, 0].add(-1.0))

    def log_jacobian(self, numbers: jax.Array) -> jax.Array:
        return jnp.sum(self.unconstrain(numbers))

    def log_prior(self, numbers: jax.Array, priors: Mapping[str, Any]) -> jax.Array:
        mean = _density(priors, "mean", constraints.positive, numbers[:, 0] - 1.0)
        return mean + _density(priors, "shape", constraints.positive, numbers[:, 1])

    def steps(self, numbers: jax.Array, phases: int) -> Steps:
        return self._steps(numbers[:, 0], numbers[:, 1], phases)

    def geometric(self, leave: np.ndarray, phases: int) -> np.ndarray:
        return np.stack([1.0 / leave, np.ones_like(leave)], axis=1)

    def right(self, numbers: np.ndarray) -> bool:
        return bool(np.all(numbers > np.array([1.0, 0.0])))


class Free(Kind):
    """A hazard for every phase."""

    needs = "hazards between 0 and 1"

    def names(self, phases: int) -> list[str]:
        return [f"hazard {{}} at {phase + 1}" for phase in range(phases)]

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        return jnp.clip(jax.nn.sigmoid(coordinates), LEAST, MOST)

    def unconstrain(self, numbers: jax.Array) -> jax.Array:
        return safe_log(numbers) - jnp.log1p(-numbers)

    def log_jacobian(self, numbers: jax.Array) -> jax.Array:
        return jnp.sum(safe_log(numbers) + jnp.log1p(-numbers))

    def log_prior(self, numbers: jax.Array, priors: Mapping[str, Any]) -> jax.Array:
        return _density(priors, "hazard", constraints.unit_interval, numbers)

    def steps(self, numbers: jax.Array, phases: int) -> Steps:
        return hazards.free(numbers)

    def geometric(self, leave: np.ndarray, phases: int) -> np.ndarray:
        return np.repeat(leave[:, None], phases, axis=1)

    def right(self, numbers: np.ndarray) -> bool:
        return bool(np.all((numbers > 0) & (numbers < 1)))


class PhaseType(Kind):
    """Phases that last for geometric times, with rising means, and after each of which a visit ends or goes on. In
    another order are the same distributions: a phase may always change places with a longer one before it."""

    phases, repeats = 2, True
    needs = "rising times above 1 and chances to end between 0 and 1"

    def names(self, phases: int) -> list[str]:
        ends = [f"end {{}} after {phase + 1}" for phase in range(phases - 1)]
        return [*(f"time {{}} in {phase + 1}" for phase in range(phases)), *ends]

    @staticmethod
    def _parts(numbers: Any) -> tuple[Any, Any]:
        phases = (numbers.shape[1] + 1) // 2
        return numbers[:, :phases], numbers[:, phases:]

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        further, ends = self._parts(coordinates)
        times = 1.0 + hazards.running_sum(jnp.exp(further))
        return jnp.concatenate([times, jnp.clip(jax.nn.sigmoid(ends), LEAST, MOST)], axis=1)

    def unconstrain(self, numbers: jax.Array) -> jax.Array:
        times, ends = self._parts(numbers)
        further = jnp.diff(times, axis=1, prepend=1.0)
        return jnp.concatenate([safe_log(further), safe_log(ends) - jnp.log1p(-ends)], axis=1)

    def log_jacobian(self, numbers: jax.Array) -> jax.Array:
        times, ends = self._parts(numbers)
        further = jnp.diff(times, axis=1, prepend=1.0)
        return jnp.sum(safe_log(further)) + jnp.sum(safe_log(ends) + jnp.log1p(-ends))

    def log_prior(self, numbers: jax.Array, priors: Mapping[str, Any]) -> jax.Array:
        times, ends = self._parts(numbers)
        orders = len(times) * math.lgamma(times.shape[1] + 1)  # of which one has rising times
        chances = _density(priors, "hazard", constraints.unit_interval, ends)
        return orders + chances + _density(priors, "mean", constraints.positive, times - 1.0)

    def steps(self, numbers: jax.Array, phases: int) -> Steps:
        return hazards.phase_type(*self._parts(numbers))

    def geometric(self, leave: np.ndarray, phases: int) -> np.ndarray:
        # Half of the visits end after each phase, and each is twice as long as the one before.
        shares, parts = 0.5 ** np.arange(phases), 2.0 ** np.arange(phases)
        further = (1.0 / leave - 1.0)[:, None] * parts / np.sum(shares * parts)
        return np.concatenate([1.0 + further, np.full((len(leave), phases - 1), 0.5)], axis=1)

    def right(self, numbers: np.ndarray) -> bool:
        times, ends = self._parts(numbers)
        return bool(np.all(np.diff(times, axis=1, prepend=1.0) > 0) and np.all((ends > 0) & (ends < 1)))


KINDS: dict[str, Kind] = {
    "negative-binomial": MeanAndShape(hazards.negative_binomial),
    "gamma": MeanAndShape(hazards.gamma),
    "free": Free(),
    "phase-type": PhaseType(),
}
