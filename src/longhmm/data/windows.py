"""Cells, cores and buffers: fixed-shape blocks of observations that never cross the end of a sequence."""

from __future__ import annotations

import dataclasses
import operator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from longhmm.data.layout import Layout
from longhmm.data.rows import Rows
from longhmm.data.sequences import Block, Sequences
from longhmm.errors import DataError

READERS = 8  # reads at a time from stores that may be far away
_MOST_AT_ONCE = 1 << 22  # rows taken from a memory map in one call: their positions are held too


def locate(xp: Any, cell_offsets: Any, offsets: Any, core_length: Any, cells: Any, buffer: Any) -> Layout:
    """Windows of the given cells in all rows, on the array namespace `xp` (numpy, or jax.numpy in compiled code).

    Cell [a, b) of sequence [s, e) has the window [max(s, a - buffer), min(e, b + buffer)). Written with remaining
    distances rather than sums, so that 32-bit integers suffice for any total length below 2^31.
    """
    only_one = len(cell_offsets) == 2
    sequence = xp.zeros_like(cells) if only_one else xp.searchsorted(cell_offsets, cells, side="right") - 1
    first, end = offsets[sequence], offsets[sequence + 1]
    core = first + (cells - cell_offsets[sequence]) * core_length
    core_size = xp.minimum(core_length, end - core)
    before = xp.minimum(buffer, core - first)
    after = xp.minimum(buffer, end - core - core_size)
    return Layout(core, before, core_size, after, core - before == first)


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """Every sequence cut into cells of `core_length` consecutive times, of which its last may be shorter.

    Cells of sequence `i` are numbered from `cell_offsets[i]` to `cell_offsets[i+1]` (exclusive).
    """

    offsets: np.ndarray
    core_length: int
    cell_offsets: np.ndarray = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        offsets = np.asarray(self.offsets, np.int64)
        core_length = _whole(self.core_length, "core_length", 1)
        counts = -(-np.diff(offsets) // core_length)  # rounded up
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "core_length", core_length)
        object.__setattr__(self, "cell_offsets", np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

    # Compared by value: a program that was compiled for one data set serves others that are cut alike.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cells):
            return NotImplemented
        return self is other or (self.core_length == other.core_length and np.array_equal(self.offsets, other.offsets))

    def __hash__(self) -> int:
        return hash((self.core_length, len(self.offsets), int(self.offsets[-1])))

    @property
    def n_cells(self) -> int:
        """Number of cells of all sequences together."""
        return int(self.cell_offsets[-1])

    def width(self, buffer: int) -> int:
        """The longest a window can be: core and both buffers."""
        return self.core_length + 2 * _whole(buffer, "buffer", 0)

    def locate(self, cells: Any, buffer: int) -> Layout:
        """Windows of the given cell numbers, with `buffer` more times on each side where the sequence has them."""
        cells = np.asarray(cells, np.int64)
        if cells.size and not (cells.min() >= 0 and cells.max() < self.n_cells):
            wrong = cells[(cells < 0) | (cells >= self.n_cells)].flat[0]
            raise DataError(f"cell {wrong} does not exist; cells must be numbers from 0 to {self.n_cells - 1}")
        return locate(np, self.cell_offsets, self.offsets, self.core_length, cells, _whole(buffer, "buffer", 0))


def gather(sequences: Sequences, layout: Layout, width: int, lags: int = 0) -> tuple[Rows, Layout]:
    """Read windows on the host: rows `(W, width, ...)`, and the windows in them laid end to end.

    Windows are padded to `width` (`Cells.width(buffer)` fits all): value 0, not observed, state unknown. From memory
    and memory maps all are taken in one call; from other files each is read by itself.
    """
    begin, left, core, right = (
        np.asarray(each, np.int64) for each in (layout.begin, layout.left, layout.core, layout.right)
    )
    start, length = begin - left, left + core + right
    if length.size and length.max() > width:
        raise DataError(f"width must be at least the longest window, {length.max()} times, but is {width}; raise it")
    placed = (np.arange(len(start)) * width + left, left, core, right, layout.opens)
    layout = Layout(*placed).padded(len(start))
    if lags or sequences.n_covariates:
        parts = [sequences.rows(int(a), int(a + n), lags).padded(width) for a, n in zip(start, length, strict=True)]
        return jax.tree.map(lambda *each: np.stack(each), *parts), layout
    taken = None
    if sequences.in_memory or (sequences.mapped and length.size * width <= _MOST_AT_ONCE):
        taken = _gather_at_once(sequences, start, length, width)
        if sequences.mapped and np.isinf(taken[0]).any():
            taken = None  # reading one by one finds the place and names it
    found = _gather_one_by_one(sequences, start, length, width) if taken is None else taken
    return Rows(*found), layout


def _gather_at_once(sequences: Sequences, start: np.ndarray, length: np.ndarray, width: int) -> tuple[Any, Any, Any]:
    times = np.arange(width)
    padding = times >= length[:, None]
    # Padding repeats the first time, which always exists, and is then blanked.
    values, observed, states = sequences.take(np.where(padding, start[:, None], start[:, None] + times))
    values[padding] = 0
    observed[padding] = False
    if states is not None:
        states[padding] = -1
    return values, observed, states


def _gather_one_by_one(sequences: Sequences, start: np.ndarray, length: np.ndarray, width: int) -> tuple[Any, Any, Any]:
    values = np.zeros((len(start), width, sequences.dim), sequences.dtype)
    observed = np.zeros(values.shape, bool)
    states = np.full(values.shape[:2], -1, np.int32) if sequences.has_states else None

    def fill(n: int, block: Block) -> None:
        size = int(length[n])
        values[n, :size], observed[n, :size] = block.values, block.observed
        if states is not None:
            states[n, :size] = block.states

    # In the order of the file, so that neighbours come from one chunk while it is at hand.
    order = np.argsort(start, kind="stable").tolist()
    spans = [(int(start[n]), int(start[n] + length[n])) for n in order]
    if getattr(sequences.source, "concurrent", False) and len(order) > 1:
        with ThreadPoolExecutor(min(READERS, len(order))) as pool:
            blocks = pool.map(lambda span: sequences.read(*span), spans)
            for n, block in zip(order, blocks, strict=True):
                fill(n, block)
    else:
        for n, block in zip(order, sequences.read_many(spans), strict=True):
            fill(n, block)
    return values, observed, states


def _whole(number: Any, name: str, least: int) -> int:
    try:
        value = operator.index(number)
    except TypeError:
        value = least - 1
    if value < least:
        raise DataError(f"{name} must be a whole number, at least {least}, but is {number!r}; choose another")
    return value
