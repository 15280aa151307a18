"""Cut data of any length into blocks of fixed shape: many chunks side by side, each with its neighbourhood.

This is the layout of streamed passes (`full_pass`, `path_pass`), which the host drives; that of compiled ones, and why
there are two, is in `lanes`.

A chunk is a stretch of consecutive times of one sequence. All chunks of a block run at once, one per vector lane. The
`reach` rows before and after a chunk warm its edge messages up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from longhmm.data.executor import Task
from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells

CHUNK_LENGTHS = (16, 64, 256, 1024)
CHUNK_OVERHEAD = 32  # what a chunk costs beside its own times, in times; decides the length for short sequences
MESSAGE_ENTRIES = 1 << 21  # numbers in one (time, state, chunk) array: keeps a pass within some 200 MB


class Block(NamedTuple):
    """Rows of a block with the tables that place them in chunks. Row `R` in any table stands for padding.

    Arrays of NumPy on the host, of JAX inside compiled functions.

    Attributes:
        values: `(R, D)` rows `[start - reach, stop + reach)` of the data, zero where outside.
        observed: `(R, D)`.
        states: `(R,)` known states or None.
        rows: `(n, W)` row of each time of each chunk.
        left: `(reach, W)` rows before each chunk, in order, first one at `[0]`; padding at the end.
        right: `(reach, W)` rows after each chunk; padding at the end.
        left_length: `(W,)` how many rows `left` holds.
        left_at_start: `(W,)` whether `left` begins at the start of its sequence.
        right_at_end: `(W,)` whether `right` ends at the end of its sequence.
        length: `(W,)` times in each chunk; 0 for a lane without a chunk.
        at_start: `(W,)` whether the chunk begins its sequence.
        at_end: `(W,)` whether the chunk ends its sequence.
    """

    values: Any
    observed: Any
    states: Any
    rows: Any
    left: Any
    right: Any
    left_length: Any
    left_at_start: Any
    right_at_end: Any
    length: Any
    at_start: Any
    at_end: Any

    def tables(self) -> Block:
        """The block without its data: programs that take only this serve every model and every kind of data."""
        return self._replace(values=None, observed=None, states=None)


class Plan:
    """How data of some lengths are cut into blocks for a model with `n_states` states.

    `shape`, the length of a chunk and their number in a block, is chosen here where it is not given.
    """

    def __init__(self, sequences: Sequences, n_states: int, shape: tuple[int, int] | None = None) -> None:
        self.sequences = sequences
        self.chunk_length, self.lanes = _shape(sequences, n_states) if shape is None else shape
        self.cells = Cells(sequences.offsets, self.chunk_length)
        self.n_blocks = -(-self.cells.n_cells // self.lanes)

    @property
    def shape(self) -> tuple[int, int]:
        """With which the same plan is made elsewhere."""
        return self.chunk_length, self.lanes

    def bounds(self, index: int) -> tuple[int, int]:
        """Rows `[start, stop)` that block `index` owns."""
        first, last = index * self.lanes, min((index + 1) * self.lanes, self.cells.n_cells) - 1
        located = self.cells.locate(np.array([first, last]), 0)
        return int(located.start[0]), int(located.start[1] + located.length[1])

    def task(self, index: int, reach: int, argument: Any) -> Task:
        """A task on block `index` with `reach` rows on each side."""
        start, stop = self.bounds(index)
        return Task(argument, max(start - reach, 0), min(stop + reach, self.sequences.length))

    def read(self, index: int, reach: int) -> Block:
        """Read block `index` with `reach` rows of neighbourhood on each side."""
        start, stop = self.bounds(index)
        n_rows = self.lanes * self.chunk_length + 2 * reach
        origin = start - reach
        lo, hi = max(origin, 0), min(stop + reach, self.sequences.length)
        data = self.sequences.read(lo, hi)
        values = np.zeros((n_rows, self.sequences.dim), data.values.dtype)
        observed = np.zeros(values.shape, bool)
        inside = slice(lo - origin, hi - origin)
        values[inside], observed[inside] = data.values, data.observed
        states = None
        if data.states is not None:
            states = np.full(n_rows, -1, np.int32)
            states[inside] = data.states
        cells = np.arange(index * self.lanes, min((index + 1) * self.lanes, self.cells.n_cells))
        located = self.cells.locate(cells, 0)
        wide = self.cells.locate(cells, reach)

        def lanes(given: np.ndarray, fill: int | bool = 0) -> np.ndarray:
            padded = np.full(self.lanes, fill, given.dtype)
            padded[: len(given)] = given
            return padded

        first = lanes(located.start - origin)
        length, left_length = lanes(located.length), lanes(wide.core_start)
        right_length = lanes(wide.length - wide.core_stop)
        ends = self._ends(cells)
        return Block(
            values,
            observed,
            states,
            _table(first, length, self.chunk_length, n_rows),
            _table(first - left_length, left_length, reach, n_rows),
            _table(first + length, right_length, reach, n_rows),
            left_length.astype(np.int32),
            lanes(wide.at_start),
            lanes(wide.start + wide.length == ends, True),
            length.astype(np.int32),
            lanes(located.at_start, True),
            lanes(located.start + located.length == ends, True),
        )

    def _ends(self, cells: np.ndarray) -> np.ndarray:
        sequence = np.searchsorted(self.cells.cell_offsets, cells, side="right") - 1
        return self.cells.offsets[sequence + 1]

    def joints(self, index: int) -> np.ndarray:
        """`(W,)`, True where a chunk of block `index` continues the chunk before it (in whatever block)."""
        cells = np.arange(index * self.lanes, min((index + 1) * self.lanes, self.cells.n_cells))
        return np.pad(~self.cells.locate(cells, 0).at_start, (0, self.lanes - len(cells)))

    def spans(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """`(W,)` each: times in every chunk of a block, 0 where a lane has none, and whether it ends its sequence."""
        cells = np.arange(index * self.lanes, min((index + 1) * self.lanes, self.cells.n_cells))
        located = self.cells.locate(cells, 0)
        spare = (0, self.lanes - len(cells))
        ends = np.asarray(located.start + located.length == self._ends(cells))
        return np.pad(np.asarray(located.length, np.int32), spare), np.pad(ends, spare, constant_values=True)

    def position(self, index: int, reach: int, row: int) -> int:
        """Global position of a row of a block that was read with `reach`."""
        return self.bounds(index)[0] - reach + row


def _shape(sequences: Sequences, n_states: int) -> tuple[int, int]:
    lengths = np.diff(sequences.offsets)
    costs = [int((-(-lengths // n)).sum()) * (n + CHUNK_OVERHEAD) for n in CHUNK_LENGTHS]
    chunk_length = CHUNK_LENGTHS[int(np.argmin(costs))]
    most = max(1, MESSAGE_ENTRIES // (n_states * chunk_length))
    # Powers of two, so that data of similar lengths share one compiled program.
    n_cells = int((-(-lengths // chunk_length)).sum())
    return chunk_length, min(1 << (most.bit_length() - 1), 1 << (n_cells - 1).bit_length())


def _table(first: np.ndarray, length: np.ndarray, depth: int, padding: int) -> np.ndarray:
    times = np.arange(depth)[:, None]
    return np.where(times < length, first + times, padding).astype(np.int32)
