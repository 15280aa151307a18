"""How chunks lie in rows, windows of a minibatch and those of a full pass alike; none crosses the end of a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from longhmm.data.rows import BLANK, Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, check_whole

if TYPE_CHECKING:
    from jaxtyping import Integer, Shaped

SIDES = ("begin", "left", "core", "right", "opens")
_MOST_AT_ONCE = 1 << 22  # rows taken from a memory map in one call: their positions are held too


@partial(jax.tree_util.register_dataclass, data_fields=SIDES, meta_fields=("spans",))
@dataclass(frozen=True, eq=False)
class Layout:
    """W chunks of consecutive rows; fewer than in others lie before or behind a core only where a sequence begins or
    ends. A chunk without a core at the end of the list is padding."""

    begin: Integer[Any, " W"]  # row of the first core time
    left: Integer[Any, " W"]  # rows before the core that only carry messages
    core: Integer[Any, " W"]  # rows whose marginals are asked for
    right: Integer[Any, " W"]  # rows behind the core that only carry messages
    opens: Shaped[Any, " W"]  # 1 where the row `begin - left` is the first of its sequence
    spans: tuple[int, int, int] = (0, 0, 0)  # the longest left, core and right, for programs of fixed shapes

    @property
    def size(self) -> int:
        return int(self.begin.shape[-1])

    def moved(self, rows: Any) -> Layout:
        return replace(self, begin=self.begin - rows)

    def trimmed(self, left: Any, right: Any, spans: tuple[int, int, int]) -> Layout:
        """The same cores with at most so many rows before and behind them."""
        least = np.minimum if isinstance(self.left, np.ndarray) else jax.numpy.minimum
        opens = self.opens * (self.left <= left)
        return Layout(self.begin, least(self.left, left), self.core, least(self.right, right), opens, spans)

    def padded(self, size: int) -> Layout:
        """The same chunks on the host, filled up to `size` with some that have no rows."""
        filled = np.zeros((5, size), np.int32)
        filled[:, : self.size] = self.begin, self.left, self.core, self.right, self.opens
        filled[4, self.size :] = 1
        begin, left, core, right, opens = filled
        return Layout(begin, left, core, right, opens, self.spans)


def ladder(length: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: shapes from it let data of similar size share programs. From 2^14
    on, where filling up costs more, of sixteenths of an octave."""
    step = 1 << max(max(length - 1, 0).bit_length() - (5 if length > 1 << 14 else 2), 0)
    return max(1, -(-length // step)) * step


def locate(xp: Any, block_offsets: Any, offsets: Any, core_length: Any, numbers: Any, buffer: Any) -> Layout:
    """The windows [max(s, a - buffer), min(e, b + buffer)) of blocks [a, b) of sequences [s, e), by numbers of blocks,
    in numpy or jax.numpy. Remaining distances rather than sums, so that 32 bits suffice for any length below 2^31."""
    only_one = len(block_offsets) == 2
    sequence = xp.zeros_like(numbers) if only_one else xp.searchsorted(block_offsets, numbers, side="right") - 1
    first, end = offsets[sequence], offsets[sequence + 1]
    core = first + (numbers - block_offsets[sequence]) * core_length
    core_size = xp.minimum(core_length, end - core)
    before = xp.minimum(buffer, core - first)
    return Layout(core, before, core_size, xp.minimum(buffer, end - core - core_size), core - before == first)


@dataclass(frozen=True, eq=False)
class Partition:
    """Every sequence cut into blocks of `core_length` consecutive times, of which its last may be shorter."""

    offsets: np.ndarray
    core_length: int
    block_offsets: np.ndarray = field(init=False, repr=False)  # number of the first block of each sequence, and the end

    def __post_init__(self) -> None:
        check_whole("core_length", self.core_length, 1, DataError)
        object.__setattr__(self, "offsets", np.asarray(self.offsets, np.int64))
        counts = -(-np.diff(self.offsets) // self.core_length)  # rounded up
        object.__setattr__(self, "block_offsets", np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

    # Compared by value: a program that was compiled for one data set serves others that are cut alike.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        return self is other or (self.core_length == other.core_length and np.array_equal(self.offsets, other.offsets))

    def __hash__(self) -> int:
        return hash((self.core_length, len(self.offsets), int(self.offsets[-1])))

    @property
    def n_blocks(self) -> int:
        return int(self.block_offsets[-1])

    def width(self, buffer: int) -> int:
        """The longest a window can be: core and both buffers."""
        return self.core_length + 2 * int(buffer)

    def locate(self, numbers: Any, buffer: int) -> Layout:
        """Windows of the given blocks, with `buffer` more times on each side where the sequence has them."""
        return locate(np, self.block_offsets, self.offsets, self.core_length, np.asarray(numbers, np.int64), buffer)


def gather(sequences: Sequences, layout: Layout, width: int, lags: int = 0) -> tuple[Rows, Layout]:
    """Read windows on the host: rows `(W, width, ...)`, padded with rows that were not observed, and the windows in
    them laid end to end. From memory and memory maps all are taken in one call."""
    begin, left, core, right = (np.asarray(getattr(layout, side), np.int64) for side in SIDES[:4])
    start, length = begin - left, left + core + right
    if length.size and length.max() > width:
        raise DataError(f"width must be at least the longest window, {length.max()} times, but is {width}; raise it")
    layout = Layout(np.arange(len(start)) * width + left, left, core, right, layout.opens).padded(len(start))
    if sequences.in_memory or (sequences.mapped and length.size * width <= _MOST_AT_ONCE):
        times = np.arange(width)
        padding = times >= length[:, None]
        # Padding repeats the first time, which always exists, and is then blanked.
        rows = sequences.take(np.where(padding, start[:, None], start[:, None] + times), lags)
        for each, blank in zip(rows, BLANK, strict=True):
            if each is not None:
                each[padding] = blank
        if sequences.in_memory or not np.isinf(rows.values).any():
            return rows, layout
        # Reading one by one finds the place of the infinite value and names it.
    # In the order of the file, so that neighbours come from one chunk while it is at hand.
    order = np.argsort(start, kind="stable")
    spans = [(int(start[n]), int(start[n] + length[n])) for n in order]
    read = [rows.padded(width) for rows in sequences.rows_of(spans, lags)]
    back = np.argsort(order)
    return jax.tree.map(lambda *each: np.stack([each[n] for n in back]), *read), layout
