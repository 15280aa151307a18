"""Which blocks of the data a minibatch holds, and with what weight: systematic sampling with spacing (F11).

With unequal probabilities a block takes a whole number of places (F27): no more than the least spacing, so that none is
drawn twice, nor than half the mean spacing, so that chance still decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.data.layout import Partition
from longhmm.errors import ModelError, check_whole

INT32_LIMIT = 2**31 - 1
MOST_GROUPS = 1 << 20  # in a table of probabilities; sequences that are shorter than a group have one of their own
NARROW = 1 << 27  # with more blocks than this, 32-bit places would leave no room to tell probabilities apart
WIDE = np.int64, 1 << 61  # places, then, and how many


@dataclass(frozen=True)
class Importance:
    """Draw the stretches that tell most about rare states, transitions and values of covariates more often, and weigh
    them less.

    A first pass over the data finds them. Weights are exact, so that this never changes the mean of gradients.

    Args:
        uniform: share of the windows that is drawn with equal probabilities, above 0 and at most 1. No window is
            weighted more than `1 / uniform` times what it would be if all were as likely.

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
        proposal: `Importance(...)` to look at rare states more often; None draws all blocks with equal probabilities.

    Example:
        >>> import longhmm as lh
        >>> lh.Windows(half_width=2, count=10).core_length
        5
    """

    half_width: int = 10
    count: int = 20
    proposal: Importance | None = None

    def __post_init__(self) -> None:
        check_whole("half_width", self.half_width, 0)
        check_whole("count", self.count, 1)
        if self.proposal is not None and not isinstance(self.proposal, Importance):
            raise ModelError(f"proposal must be Importance(...) or None, got {self.proposal!r}.")

    @property
    def core_length(self) -> int:
        """Times in the core of a window, `C = 2 L + 1`."""
        return 2 * self.half_width + 1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SystematicSampling:
    """Draws `count` of `population` blocks (or places), neighbours at least `spacing` apart."""

    population: int = field(metadata={"static": True})
    count: int = field(metadata={"static": True})
    spacing: int
    shrunk: bool = False  # there was no room for the spacing that windows a mixing time apart would have needed

    @staticmethod
    def plan(n_blocks: int, windows: Windows, buffer: int, mixing_time: float) -> SystematicSampling:
        """The scheme for a buffer length and a mixing time: windows at least `2 (L + B) + nu` times apart (F15)."""
        count = min(windows.count, n_blocks)
        wanted = math.ceil((2 * (windows.half_width + buffer) + mixing_time) / windows.core_length)
        spacing = max(1, min(wanted, n_blocks // count))
        return SystematicSampling(n_blocks, count, spacing, spacing < wanted)

    @property
    def weight(self) -> float:
        """N/S, with which each drawn block enters the sum."""
        return self.population / self.count

    @property
    def narrow(self) -> bool:
        """Whether places are 32-bit numbers, which compiled code can draw."""
        return self.population < INT32_LIMIT

    def find(self, xp: Any, places: Any) -> tuple[Any, Any]:
        """Blocks at some places, and their weights: every place is a block."""
        return places, xp.full(places.shape, self.weight, xp.float32)

    def draw(self, key: Array) -> Array:
        """`(S,)` distinct numbers, each with inclusion probability S/N; from integer bits alone."""
        spacing_key, offset_key = jax.random.split(key)
        # The type is part of the draw: left to JAX's settings, one seed would give different blocks in other scopes.
        dtype = jnp.int32 if self.narrow else jnp.int64
        spare = self.population - self.count * self.spacing
        how = spacing_key, (self.count - 1,)
        cuts = jnp.sort(_below(*how, spare + 1) if self.narrow else jax.random.randint(*how, 0, spare + 1, dtype))
        # Spacings are `spacing` plus the pieces of `spare` between neighbouring cuts; running sums are the places.
        places = jnp.concatenate([jnp.zeros(1, dtype), cuts]) + self.spacing * jnp.arange(self.count, dtype=dtype)
        return self.shift(places, jax.random.randint(offset_key, (), 0, self.population, dtype))

    def shift(self, places: Array, offset: Array) -> Array:
        """`places + offset`, modulo the population; written without sums that could overflow."""
        return jnp.where(places < self.population - offset, places + offset, places - (self.population - offset))


def _below(key: Array, shape: tuple[int, ...], limit: Any) -> Array:
    """What `jax.random.randint` draws below a limit that is not known when it is compiled, by one division for all."""
    high, low = (jax.random.bits(each, shape, jnp.uint32) for each in jax.random.split(key))
    divisor = jnp.asarray(limit, jnp.uint32)

    def remainder(values: Array) -> Array:
        with jax.enable_x64(True):
            quotient = (values.astype(jnp.uint64) * (jnp.uint32(2**32 - 1) // divisor)) >> jnp.uint64(32)
        rest = values - quotient.astype(jnp.uint32) * divisor
        return jnp.minimum(rest, rest - divisor)  # the quotient is at most one too small

    power = jnp.uint32(2**16) % divisor
    return remainder(remainder(high) * (power * power % divisor) + remainder(low)).astype(jnp.int32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class UnequalSampling:
    """Unequal inclusion probabilities, the same for the blocks of each of G groups: a table of bounded size."""

    scheme: SystematicSampling  # draws places
    edges: Any  # `(G,)`, first place of each group
    first: Any  # `(G,)`, number of its first block
    size: Any  # `(G,)`, places of each of its blocks
    weight: Any  # `(G,)`, float32, `M / (S size)`

    def find(self, xp: Any, places: Any) -> tuple[Any, Any]:
        """Blocks at some places, and their weights, on the array namespace `xp` (numpy, or jax.numpy when compiled)."""
        group = xp.searchsorted(self.edges, places, side="right") - 1
        return self.first[group] + (places - self.edges[group]) // self.size[group], self.weight[group]


def groups_of(blocks: Partition) -> Partition:
    """The same sequences cut into groups of whole blocks, about as many as a table may hold."""
    return Partition(blocks.offsets, blocks.core_length * -(-blocks.n_blocks // MOST_GROUPS))


def plan_unequal(
    blocks: Partition, importance: np.ndarray, uniform: float, scheme: SystematicSampling
) -> UnequalSampling:
    """Probabilities of which a share `uniform` is the same for all blocks, and the rest follows the importance `(G,)`
    of groups as a whole, nonnegative and not all zero; `scheme` is how blocks would be drawn with equal ones."""
    groups, per_group = groups_of(blocks), -(-blocks.n_blocks // MOST_GROUPS)
    sequence = np.repeat(np.arange(len(blocks.offsets) - 1), np.diff(groups.block_offsets))
    first = blocks.block_offsets[sequence] + (np.arange(groups.n_blocks) - groups.block_offsets[sequence]) * per_group
    counts = np.minimum(per_group, blocks.block_offsets[sequence + 1] - first)  # blocks of a group, from the first on
    kind, places = WIDE if blocks.n_blocks > NARROW else (np.int32, INT32_LIMIT - 1 - blocks.n_blocks)
    share = importance / importance.sum() / counts
    # Whole numbers, rounded down: the weights are those of the rounded numbers, and so exact.
    size = max(1, int(uniform * places / blocks.n_blocks)) + np.floor((1.0 - uniform) * places * share).astype(np.int64)
    size = _limited(size, counts, min(2 * scheme.count, blocks.n_blocks))
    total = int(np.sum(size * counts))
    spacing = min(max(scheme.spacing * (total // blocks.n_blocks), int(size.max())), total // scheme.count)
    edges, weight = np.cumsum(size * counts) - size * counts, np.float32(total / (scheme.count * size.astype(float)))
    edges, first, size = (each.astype(kind) for each in (edges, first, size))
    return UnequalSampling(SystematicSampling(total, scheme.count, spacing, scheme.shrunk), edges, first, size, weight)


def _limited(size: np.ndarray, counts: np.ndarray, count: int) -> np.ndarray:
    """Sizes of which none takes more than a `count`-th part of all places; there are at least `count` blocks."""
    cut = np.zeros(len(size), bool)
    while True:
        rest, held = int(np.sum((size * counts)[~cut])), int(counts[cut].sum())
        largest = rest // (count - held)
        over = ~cut & (size > largest)  # with these cut there are fewer places, and others may be too large in turn
        if not over.any():
            return np.where(cut, largest, size)
        cut |= over
