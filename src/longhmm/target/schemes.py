"""Which windows a minibatch holds, and with what weight: random rotation of cells on a circle.

The N cells of all sequences lie on a circle. S gaps of at least m cells that sum to N are drawn, and the whole pattern
is rotated by a uniform offset. Whatever the law of the gaps, the rotation alone gives every cell the inclusion
probability S/N, so that weights N/S make the sum unbiased (F11), without rejection and in O(S) operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError

INT32_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Importance:
    """Draw the stretches that tell most about rare states and rare moves more often, and weigh them less.

    A first pass over the data, at the parameters at which windows are bound, finds where each state and each kind of
    move happens. Weights are exact whatever it finds, so that this changes the noise of gradients and never their mean.

    Args:
        uniform: share of the windows that is drawn without looking, above 0 and at most 1. No window is weighted more
            than `1 / uniform` times what it would be if all were as likely.

    Example:
        >>> import longhmm as lh
        >>> lh.Windows(count=64, proposal=lh.Importance(uniform=0.5)).proposal
        Importance(uniform=0.5)
    """

    uniform: float = 1.0 / 3.0

    def __post_init__(self) -> None:
        number = isinstance(self.uniform, (int, float, np.number)) and not isinstance(self.uniform, bool)
        if not number or not 0.0 < self.uniform <= 1.0:
            raise ModelError(f"uniform must be a number above 0 and at most 1, got {self.uniform!r}.")


@dataclass(frozen=True)
class Windows:
    """How much data one minibatch holds.

    Args:
        half_width: L; the core of a window has `2 L + 1` times.
        count: S, the number of windows in a minibatch.
        proposal: `Importance(...)` to look at rare states more often; None draws all parts of the data alike.

    Example:
        >>> import longhmm as lh
        >>> lh.Windows(half_width=2, count=10).core_length
        5
    """

    half_width: int = 10
    count: int = 20
    proposal: Importance | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("half_width", self.half_width, 0), ("count", self.count, 1)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ModelError(f"{name} must be a whole number of at least {least}, got {value!r}.")
        if self.proposal is not None and not isinstance(self.proposal, Importance):
            raise ModelError(f"proposal must be Importance(...) or None, got {self.proposal!r}.")

    @property
    def core_length(self) -> int:
        """Times in the core of a window, `C = 2 L + 1`."""
        return 2 * self.half_width + 1


@dataclass(frozen=True)
class Rotation:
    """Draws `count` of `n_cells` cells, neighbours at least `gap` cells apart.

    `shrunk` says that there was no room for the gap that windows a mixing time apart would have needed.
    """

    n_cells: int
    count: int
    gap: int
    shrunk: bool = False

    @staticmethod
    def plan(n_cells: int, windows: Windows, buffer: int, mixing_time: float) -> Rotation:
        """The scheme for a buffer length and a mixing time: windows at least `2 (L + B) + nu` times apart (F15)."""
        count = min(windows.count, n_cells)
        wanted = math.ceil((2 * (windows.half_width + buffer) + mixing_time) / windows.core_length)
        gap = max(1, min(wanted, n_cells // count))
        return Rotation(n_cells, count, gap, gap < wanted)

    @property
    def weight(self) -> float:
        """N/S, with which each drawn cell enters the sum."""
        return self.n_cells / self.count

    def draw(self, key: jax.Array) -> jax.Array:
        """`(S,)` distinct cells, each with inclusion probability S/N; from integer bits alone."""
        gap_key, offset_key = jax.random.split(key)
        # The type is part of the draw: left to JAX's settings, one seed would give different cells in different places.
        dtype = jnp.int32 if self.n_cells < INT32_LIMIT else jnp.int64
        spare = self.n_cells - self.count * self.gap
        cuts = jnp.sort(jax.random.randint(gap_key, (self.count - 1,), 0, spare + 1, dtype))
        # The gaps are `gap` plus the pieces of `spare` between neighbouring cuts; their running sums place the cells.
        places = jnp.concatenate([jnp.zeros(1, dtype), cuts]) + self.gap * jnp.arange(self.count, dtype=dtype)
        return self.rotate(places, jax.random.randint(offset_key, (), 0, self.n_cells, dtype))

    def rotate(self, places: jax.Array, offset: jax.Array) -> jax.Array:
        """The cells at `places` on the circle, turned by `offset`; written without sums that could overflow."""
        room = self.n_cells - offset
        return jnp.where(places < room, places + offset, places - room)
