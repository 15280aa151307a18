"""Data laid out for compiled passes: every sequence cut into chunks, chunks side by side, one per vector lane.

There are two ways to lay data out for passes in JAX, with the same recursions (`messages`), edges (`edges`) and proofs
(`proofs`). Here everything is inside one program, for samplers that ask thousands of times: the data are laid out once,
blocks are so small that they stay in the cache of a CPU, and the program itself goes on until edges are proved. In
`blocks` the host drives: rows are read as they come, wherever an executor takes them, each block goes out as soon as it
is proved, and what is impossible is named by its row. One gradient of a million rows takes a third of the time here.

Neighbouring lanes hold neighbouring chunks, so the rows before a chunk are the last rows of the lane to its left, and
no table of positions is needed. A block holds `lanes` chunks and one more on either side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells, gather
from longhmm.kernels.forms import Form
from longhmm.kernels.pallas_plan import Plan
from longhmm.model.hmm import HMM

Params = Mapping[str, jax.Array]

CHUNK_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
REACH = 64  # rows of the neighbours with which the edges of a chunk are first guessed
STEP_OVERHEAD = 500.0  # what one step of a recursion costs beside its arithmetic, in multiplications (two CPU cores)
# Numbers in one (time, state, chunk) array: on a CPU what stays in its cache (five times faster than 2^21), on other
# devices enough to keep them busy.
BLOCK_ENTRIES = {"cpu": 1 << 16}
BLOCK_ENTRIES_ELSEWHERE = 1 << 24
RESIDENT_BYTES = 1 << 32  # data up to this size are kept by the device, larger ones are read again in every pass


class LaneBlock(NamedTuple):
    """One block of chunks, or all blocks stacked along a leading axis. The outermost two lanes belong to neighbours.

    Attributes:
        values: `(n, lanes + 2, D)`, NaN where missing; zero beyond the end of a chunk.
        states: `(n, lanes + 2)` known states, -1 where unknown; None if none were given.
        length: `(lanes + 2,)` times in each chunk, 0 for a lane without one.
        at_start: `(lanes + 2,)` whether the chunk begins its sequence (True for a lane without a chunk).
    """

    values: Any
    states: Any
    length: Any
    at_start: Any

    def own(self) -> LaneBlock:
        """Without the lanes of neighbours."""
        states = None if self.states is None else self.states[:, 1:-1]
        return LaneBlock(self.values[:, 1:-1], states, self.length[1:-1], self.at_start[1:-1])


class Lanes:
    """The layout of some data for a model with `n_states` states."""

    def __init__(self, sequences: Sequences, n_states: int) -> None:
        self.sequences = sequences
        lengths = np.diff(sequences.offsets)
        self.chunk_length = min(CHUNK_LENGTHS, key=lambda n: _cost(lengths, n, n_states))
        self.cells = Cells(sequences.offsets, self.chunk_length)
        self.reach = min(REACH, self.chunk_length) if int(lengths.max()) > self.chunk_length else 0
        self.lanes = min(_most_lanes(self.chunk_length, n_states), self.cells.n_cells)
        self.n_blocks = -(-self.cells.n_cells // self.lanes)
        floating = sequences.dtype.kind == "f"
        # Missing integers become NaN, so that one array says both what was seen and whether.
        self.dtype = sequences.dtype if floating or not sequences.has_mask else np.dtype(np.float64)

    def read(self, index: int) -> LaneBlock:
        """Block `index`, read on the host."""
        wanted = np.arange(index * self.lanes - 1, (index + 1) * self.lanes + 1)
        real = (wanted >= 0) & (wanted < self.cells.n_cells)
        windows = gather(self.sequences, self.cells.locate(wanted[real], 0), self.chunk_length)
        given = np.where(windows.observed, windows.values, np.nan) if self.dtype.kind == "f" else windows.values
        inside = np.arange(self.chunk_length)[:, None] < windows.length
        values = np.zeros((self.chunk_length, len(wanted), self.sequences.dim), self.dtype)
        values[:, real] = np.where(inside[..., None], np.swapaxes(given, 0, 1), 0)
        states = None
        if windows.states is not None:
            states = np.full(values.shape[:2], -1, np.int32)
            states[:, real] = windows.states.T
        length, at_start = np.zeros(len(wanted), np.int32), np.ones(len(wanted), bool)
        length[real], at_start[real] = windows.length, windows.at_start
        return LaneBlock(values, states, length, at_start)

    def first_rows(self) -> np.ndarray:
        """`(n_blocks, lanes)`, row at which each chunk begins; 0 for a lane without one."""
        starts = np.zeros(self.n_blocks * self.lanes, np.int64)
        starts[: self.cells.n_cells] = self.cells.locate(np.arange(self.cells.n_cells), 0).start
        return starts.reshape(self.n_blocks, self.lanes)

    def layout(self) -> Layout:
        """What a program needs to know; it holds on to the data only if it has to read them."""
        reader = None if self.fits else self
        return Layout(self.chunk_length, self.reach, self.lanes, self.n_blocks, reader)

    @property
    def fits(self) -> bool:
        """Whether all blocks may be kept at once."""
        rows = self.n_blocks * self.chunk_length * (self.lanes + 2)
        return rows * self.sequences.dim * self.dtype.itemsize <= RESIDENT_BYTES

    def stack(self) -> LaneBlock:
        """All blocks, with a leading axis, on the device."""
        blocks = [self.read(index) for index in range(self.n_blocks)]
        return jax.tree.map(lambda *parts: jnp.asarray(np.stack(parts)), *blocks)

    def shapes(self) -> LaneBlock:
        """Shapes and types of what `read` returns."""
        width = self.lanes + 2
        states = jax.ShapeDtypeStruct((self.chunk_length, width), np.int32) if self.sequences.has_states else None
        return LaneBlock(
            jax.ShapeDtypeStruct((self.chunk_length, width, self.sequences.dim), self.dtype),
            states,
            jax.ShapeDtypeStruct((width,), np.int32),
            jax.ShapeDtypeStruct((width,), np.bool_),
        )


class Layout(NamedTuple):
    """The numbers of a layout; equal ones share a compiled program. `reader` is None if the device keeps the data."""

    chunk_length: int
    reach: int
    lanes: int
    n_blocks: int
    reader: Lanes | None


class Program(NamedTuple):
    """What is constant in a compiled pass: the model, the layout, and whether rows are observed in part; `plan` and
    `form` are for the fused kernels of the GPU and of the CPU, where they can be tried first."""

    model: HMM
    lanes: Layout
    partial_rows: bool
    dtype: np.dtype
    plan: Plan | None = None
    form: Form | None = None

    def block(self, stacked: LaneBlock | None, index: jax.Array) -> LaneBlock:
        """Block `index`, from the device or, without stacked blocks, read on the host."""
        if stacked is not None:
            return jax.tree.map(lambda part: part[index], stacked)
        reader = self.lanes.reader
        assert reader is not None
        shapes = reader.shapes()
        wide = jax.ShapeDtypeStruct((*shapes.values.shape, shapes.values.dtype.itemsize), np.uint8)

        def read(at: Any) -> LaneBlock:
            # It touches NumPy only: it must not wait for the program that waits for it. Values travel as bytes, since
            # the thread that calls knows nothing of the scope's double precision and would cut them short.
            block = reader.read(int(at))
            return block._replace(values=np.ascontiguousarray(block.values)[..., None].view(np.uint8))

        block = jax.pure_callback(read, shapes._replace(values=wide), index.astype(jnp.int32))
        if wide.shape[-1] == 1:
            return block._replace(values=block.values[..., 0].view(shapes.values.dtype))
        return block._replace(values=jax.lax.bitcast_convert_type(block.values, shapes.values.dtype))

    def log_likelihoods(self, params: Params, block: LaneBlock) -> jax.Array:
        """`(n, lanes + 2, K)`; 0 where missing and beyond the end of a chunk."""
        inside = jnp.arange(block.values.shape[0])[:, None] < block.length
        values, observed = block.values, jnp.broadcast_to(inside[..., None], block.values.shape)
        if jnp.issubdtype(values.dtype, jnp.floating):
            values, observed = values.astype(self.dtype), observed & ~jnp.isnan(values)
        logs = self.model.log_likelihoods(params, values, observed, block.states, partial=self.partial_rows)
        return logs.astype(self.dtype)


def check_rows(model: HMM, sequences: Sequences, rows: int = 1 << 18) -> bool:
    """Look at all data once: refuse what the emission cannot have produced; True if a row is observed in part only."""
    model.check_dim(sequences)
    found = False
    for start in range(0, sequences.length, rows):
        block = sequences.read(start, min(start + rows, sequences.length))
        model.check_rows(sequences, block.values, block.observed, start)
        found = found or bool(np.any(block.observed.any(axis=1) != block.observed.all(axis=1)))
    return found


def _most_lanes(chunk_length: int, n_states: int) -> int:
    entries = BLOCK_ENTRIES.get(jax.default_backend(), BLOCK_ENTRIES_ELSEWHERE)
    return max(1, entries // (n_states * chunk_length))


def _cost(lengths: np.ndarray, chunk_length: int, n_states: int) -> float:
    """Estimated time of one pass: steps of the recursion, each with its overhead and its arithmetic."""
    reach = REACH if int(lengths.max()) > chunk_length else 0
    chunks = int((-(-lengths // chunk_length)).sum())
    lanes = min(chunks, _most_lanes(chunk_length, n_states))
    return (chunk_length + reach) * (-(-chunks // lanes) * STEP_OVERHEAD + chunks * n_states * (n_states + 1.0))
