"""Step sizes as functions of the number of the step; never of the clock, so that a run can be repeated."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.errors import ModelError
from longhmm.samplers.contract import Sampler


class Schedule(Protocol):
    """A policy that says how long each step is."""

    def at(self, step_index: Any) -> Any:
        """The step size h of step `step_index`, counted from 0; the index may be traced."""


@dataclass(frozen=True)
class Constant:
    """`h_i = step`, for every step i."""

    step: float

    def __post_init__(self) -> None:
        positive("step", self.step)

    def at(self, step_index: Any) -> Any:
        return self.step


@dataclass(frozen=True)
class PolynomialDecay:
    """`h_i = step (1 + i / offset)^(-power)`: begins at `step` and falls once `i` passes `offset`.

    Powers in (1/2, 1] satisfy the conditions under which averages over stochastic-gradient chains converge to the
    posterior without any correction of the noise (Welling and Teh 2011); a power of 1/3 balances bias and variance.

    Example:
        >>> PolynomialDecay(step=0.1, offset=100.0, power=1.0).at(100)
        0.05
    """

    step: float
    offset: float = 1000.0
    power: float = 1.0 / 3.0

    def __post_init__(self) -> None:
        for name in ("step", "offset", "power"):
            positive(name, getattr(self, name))

    def at(self, step_index: Any) -> Any:
        return self.step * (1.0 + step_index / self.offset) ** (-self.power)


@dataclass(frozen=True)
class Halved:
    """Half of another schedule."""

    schedule: Schedule

    def at(self, step_index: Any) -> Any:
        return 0.5 * self.schedule.at(step_index)


class Stepped(Sampler):
    """A sampler whose step size the user gives."""

    step_size: Any

    def __post_init__(self) -> None:
        as_schedule(self.step_size)

    def size_at(self, step_index: Any, dtype: Any) -> Array:
        return jnp.asarray(as_schedule(self.step_size).at(step_index), dtype)

    def halved(self) -> Sampler:
        return replace(self, step_size=Halved(as_schedule(self.step_size)))  # type: ignore[type-var]


def as_schedule(step_size: float | Schedule) -> Schedule:
    """A bare number means a constant step size."""
    if hasattr(step_size, "at"):
        return step_size
    positive("step_size", step_size)
    return Constant(float(step_size))


def positive(name: str, value: Any) -> None:
    """Refuse an argument that must be a finite number above 0."""
    number = not isinstance(value, bool) and isinstance(value, (int, float, np.integer, np.floating))
    if not number or not 0 < value < float("inf"):
        raise ModelError(f"{name} must be a finite number above 0, got {value!r}.")
