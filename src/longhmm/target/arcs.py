"""Cells with unequal chances: the same circle and the same rotation, with a longer arc for a cell that matters more.

Every cell lies on the circle with a whole number of places. The rotation draws S places that are each uniform over the
circle of M places, so that a cell of `size` places is drawn with probability `S size / M` exactly, and its weight
`M / (S size)` makes the sum unbiased (F27). No arc is longer than the gap between two places drawn, so that no cell is
drawn twice, and none is longer than half the mean distance between them, so that chance still decides which are drawn.

Neighbouring cells share a block and its arc where there are too many cells for a table: its size never follows the
length of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.windows import Cells
from longhmm.target.schemes import INT32_LIMIT, Rotation

MOST_BLOCKS = 1 << 20  # in the table; sequences that are shorter than a block have one of their own
NARROW = 1 << 27  # with more cells than this, 32-bit places would leave no room to tell arcs apart
WIDE_CIRCLE = 1 << 61


@partial(jax.tree_util.register_dataclass, data_fields=("edges", "first", "size", "weight"), meta_fields=("rotation",))
@dataclass(frozen=True, eq=False)
class Arcs:
    """Where the cells of each of B blocks lie on the circle.

    Attributes:
        rotation: draws places on the circle.
        edges: `(B,)`, first place of each block.
        first: `(B,)`, number of its first cell.
        size: `(B,)`, places of each of its cells.
        weight: `(B,)`, float32, `M / (S size)`.
    """

    rotation: Rotation
    edges: Any
    first: Any
    size: Any
    weight: Any

    def find(self, xp: Any, places: Any) -> tuple[Any, Any]:
        """Cells at some places, and their weights, on the array namespace `xp` (numpy, or jax.numpy when compiled)."""
        block = xp.searchsorted(self.edges, places, side="right") - 1
        return self.first[block] + (places - self.edges[block]) // self.size[block], self.weight[block]

    @property
    def narrow(self) -> bool:
        """Whether places are 32-bit numbers, which compiled code can draw."""
        return self.rotation.n_cells < INT32_LIMIT

    def to_device(self) -> Arcs:
        """The same table on the device."""
        return jax.tree.map(jnp.asarray, self)


def blocks_of(cells: Cells) -> Cells:
    """The same sequences cut into blocks of whole cells, about as many as the table may hold."""
    return Cells(cells.offsets, cells.core_length * -(-cells.n_cells // MOST_BLOCKS))


def plan_arcs(cells: Cells, importance: np.ndarray, uniform: float, rotation: Rotation) -> Arcs:
    """Arcs of which a share `uniform` is the same for all cells, and the rest in proportion to the importance.

    Args:
        importance: `(B,)`, of each block of `blocks_of(cells)` as a whole; nonnegative, and not all zero.
        uniform: above 0, so that every cell can be drawn, with a weight of at most `1 / uniform` times the usual one.
        rotation: how cells would be drawn if all were as likely.
    """
    first, counts = _cells_of_blocks(cells)
    wide = cells.n_cells > NARROW
    circle = WIDE_CIRCLE if wide else INT32_LIMIT - 1 - cells.n_cells
    share = importance / importance.sum() / counts
    # Whole numbers, rounded down: the weights are those of the rounded arcs, and so exact.
    size = max(1, int(uniform * circle / cells.n_cells)) + np.floor((1.0 - uniform) * circle * share).astype(np.int64)
    size = _limited(size, counts, min(2 * rotation.count, cells.n_cells))
    total = int(np.sum(size * counts))
    gap = min(max(rotation.gap * (total // cells.n_cells), int(size.max())), total // rotation.count)
    kind = np.int64 if wide else np.int32
    return Arcs(
        Rotation(total, rotation.count, gap, rotation.shrunk),
        np.concatenate([[0], np.cumsum(size * counts)[:-1]]).astype(kind),
        first.astype(kind),
        size.astype(kind),
        (total / (rotation.count * size.astype(np.float64))).astype(np.float32),
    )


def _cells_of_blocks(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """The first cell of each block, and how many it has."""
    blocks = blocks_of(cells)
    per_block = blocks.core_length // cells.core_length
    sequence = np.repeat(np.arange(len(cells.offsets) - 1), np.diff(blocks.cell_offsets))
    within = np.arange(blocks.n_cells) - blocks.cell_offsets[sequence]
    first = cells.cell_offsets[sequence] + within * per_block
    return first, np.minimum(per_block, cells.cell_offsets[sequence + 1] - first)


def _limited(size: np.ndarray, counts: np.ndarray, count: int) -> np.ndarray:
    """Arcs of which none takes more than a `count`-th part of the circle; there are at least `count` cells.

    With the longest ones cut to the same length, the circle is shorter, and others may become too long in turn.
    """
    cut = np.zeros(len(size), bool)
    while True:
        rest, held = int(np.sum((size * counts)[~cut])), int(counts[cut].sum())
        longest = rest // (count - held)
        over = ~cut & (size > longest)
        if not over.any():
            return np.where(cut, longest, size)
        cut |= over
