"""Exact passes inside compiled programs, for samplers that ask thousands of times: data are laid out once.

Chunks start some rows early and their boundaries are compared, as in `stream`; here the program itself goes on, from
one overlap to the next and in the end to transfer operators, until all is exact.

An emission with a lowering has its numbers laid out, and one call serves all rows. Otherwise log likelihoods are
evaluated in blocks of rows, so that nothing of the size of the data is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends import stitch
from longhmm.backends.evaluate import Pull, Statistics, choose, chunk_statistics, lower
from longhmm.backends.protocol import Backend, Boundary, Potentials, Wanted
from longhmm.backends.read import Reader, check_all
from longhmm.data.layout import Layout, Partition
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold, unfolded
from longhmm.model.parameters import Tree

Params = Mapping[str, jax.Array]
RESIDENT_BYTES = 1 << 32  # data up to this size are kept by the device, larger ones are read again in every pass
BLOCK_ENTRIES = 1 << 20  # log likelihoods, rows times states, that a program holds at once
# Programs of the reference have fixed shapes: one overlap, then transfer operators.
FIXED_OVERLAPS = (64,)


class Data(NamedTuple):
    """All data on the device."""

    rows: Rows | None  # without `observed`: NaN says what is missing; None where they are read in every pass
    numbers: Any  # `(T, width)` of the emission's lowering, or None
    layout: Layout  # all chunks, with the rows around each up to one more than the longest overlap
    log_base_measure: Any  # sum of `log h(y)`


@dataclass(frozen=True, eq=False)
class Program(Tree):
    """What holds in a compiled pass: the model; and, as structure, the backend, how chunks and blocks are cut, whether
    rows are observed in part; `source` is None if the device keeps the data."""

    model: HMM
    backend: Backend
    chunk: int
    per_block: int
    n_blocks: int
    length: int
    partial_rows: bool
    source: Sequences | None

    @property
    def overlaps(self) -> tuple[int, ...]:
        """Rows by which chunks start early, in the order in which they are tried."""
        return stitch.OVERLAPS if self.backend.in_place else FIXED_OVERLAPS

    def trimmed(self, layout: Layout, overlap: Any, around: int) -> Layout:
        """The chunks as they start `overlap` rows early, in spans with `around` rows on either side."""
        spans = (0, 0, 0) if self.backend.in_place else (around, self.chunk, around)
        return layout.trimmed(overlap, overlap, spans)

    @property
    def block_rows(self) -> int:
        """Rows of a block with what lies around it."""
        return min(self.per_block * self.chunk + 2 * self.overlaps[-1], self.length)

    def block(self, data: Data, index: jax.Array) -> tuple[Rows, jax.Array]:
        """The rows around block `index`, and the row of the data at which they begin."""
        first = data.layout.begin[index * self.per_block] - self.overlaps[-1]
        origin = jnp.clip(first, 0, self.length - self.block_rows).astype(jnp.int32)
        return self.rows(data, origin, self.block_rows), origin

    @property
    def shares(self) -> tuple[int, int]:
        """Rows of one share of the data, and how many shares there are; the last may repeat rows of the one before."""
        size = min(max(1, BLOCK_ENTRIES // self.model.n_states), self.length)
        return size, -(-self.length // size)

    def share(self, data: Data, index: jax.Array) -> tuple[Rows, jax.Array, jax.Array]:
        """The rows of share `index`, the row at which they begin, and which of them are not in the share before it."""
        size, _ = self.shares
        origin = jnp.minimum(index * size, self.length - size).astype(jnp.int32)
        return self.rows(data, origin, size), origin, origin + jnp.arange(size) >= index * size

    def rows(self, data: Data, origin: jax.Array, size: int) -> Rows:
        """`size` rows from `origin` on."""
        if self.source is None:
            rows = jax.tree.map(lambda each: jax.lax.dynamic_slice_in_dim(each, origin, size), data.rows)
        else:
            rows = _read_on_host(self.source, origin, size, self.model.lags)
        floating = jnp.issubdtype(rows.values.dtype, jnp.floating)
        return rows._replace(observed=~jnp.isnan(rows.values) if floating else jnp.ones(rows.values.shape, bool))


def lay_out(model: HMM, sequences: Sequences) -> tuple[Program, Data]:
    """Data for passes in double precision, under `jax.enable_x64(True)`."""
    inner = unfolded(model)
    reader = Reader(inner, sequences)
    backend = choose(reader.kind, inner.n_states, model.transitions.varies)
    partition = Partition(sequences.offsets, chunk := reader.chunk)
    fits = sequences.length * sequences.dim * 8 <= RESIDENT_BYTES
    per_block = int(np.clip(BLOCK_ENTRIES // (inner.n_states * chunk), 1, partition.n_blocks))
    n_blocks = -(-partition.n_blocks // per_block)
    source, partial_rows = None if fits else sequences, check_all(model, sequences)
    program = Program(model, backend, chunk, per_block, n_blocks, sequences.length, partial_rows, source)
    layout = partition.locate(np.arange(partition.n_blocks), program.overlaps[-1] + 1).padded(n_blocks * per_block)
    layout = jax.tree.map(lambda each: jnp.asarray(each, jnp.int32), layout)
    rows = numbers = None
    if fits:
        rows = _with_gaps(sequences.rows(0, sequences.length, model.lags))
        if reader.lowering is not None:
            numbers = rows.values if reader.lowering.rows_are_values else reader.numbers(0, sequences.length)
            numbers = numbers if reader.moves is None else reader.moves.beside(numbers, 0, sequences.length)
        rows, numbers = jax.tree.map(jnp.asarray, (rows, numbers))
    base = jnp.asarray(reader.log_base_measure() if numbers is not None else 0.0)
    return program, Data(rows, numbers, layout, base)


Carry = tuple[jax.Array, Statistics, jax.Array]


def exact_statistics(program: Program, data: Data, params: Params, level: jax.Array) -> tuple[Statistics, jax.Array]:
    """Statistics of all data, beginning with overlap number `level`; and the number at which all was exact."""
    memory, model, params = unfold(program.model, params)
    program, last = replace(program, model=model), len(program.overlaps)
    overlaps = jnp.asarray(program.overlaps, jnp.int32)

    def again(carry: Carry) -> jax.Array:
        level, found, gap = carry
        # Without a log likelihood there is nothing to compare.
        return (level < last - 1) & ~(gap <= stitch.TOLERANCE) & jnp.isfinite(found.log_likelihood)

    def attempt(carry: Carry) -> Carry:
        level = carry[0] + 1
        return level, *run_chunks(program, data, params, overlaps[jnp.minimum(level, last - 1)], None)

    def propagate(carry: tuple[jax.Array, jax.Array, Statistics]) -> tuple[jax.Array, jax.Array, Statistics]:
        exact, _ = run_chunks(program, data, params, jnp.zeros((), jnp.int32), propagated(program, data, params))
        return jnp.asarray(True), jnp.asarray(last, jnp.int32), exact

    # What was not exact with the longest overlap need not be tried again: such programs begin with operators.
    begin = jnp.minimum(level, last).astype(jnp.int32) - 1
    shapes = jax.eval_shape(attempt, (begin, None, None))[1]
    nothing = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), shapes)
    level, found, gap = jax.lax.while_loop(again, attempt, (begin, nothing, jnp.asarray(jnp.inf)))
    settled = (gap <= stitch.TOLERANCE) | ~(jnp.isfinite(found.log_likelihood) | jnp.isinf(gap))
    # A loop of one turn at most: unlike a condition, it costs nothing where chains share a program and none needs it.
    _, level, found = jax.lax.while_loop(lambda carry: ~carry[0], propagate, (settled, level, found))
    found = memory.folded(found)
    return found._replace(log_likelihood=found.log_likelihood + data.log_base_measure), level


def by_blocks(
    program: Program, data: Data, params: Params, run: Callable[..., Any], layout: Layout, *others: Any
) -> Any:
    """What `run(potentials, pull, origin, chunks, *others)` makes of all chunks at once where the emission has numbers,
    else block by block; with a leading axis of blocks. `origin` is the row at which the potentials begin."""
    if data.numbers is not None:
        found = run(*lower(program.model, params, None, data.numbers), jnp.zeros((), jnp.int32), layout, *others)
        return jax.tree.map(lambda each: each[None], found)

    def one(block: tuple[Any, ...]) -> Any:
        index, chunks, *rest = block
        rows, origin = program.block(data, index)
        moved = chunks.moved(jnp.where(chunks.core > 0, origin, 0))
        return run(*lower(program.model, params, rows), origin, moved, *rest)

    shape = (program.n_blocks, program.per_block)
    blocks = jax.tree.map(lambda each: each.reshape(*shape, *each.shape[1:]), (layout, *others))
    return jax.lax.map(one, (jnp.arange(program.n_blocks), *blocks))


def defined(data: Data, potentials: Potentials, log_likelihood: jax.Array) -> jax.Array:
    """Log likelihoods, not a number where a density was none."""
    if data.numbers is not None:
        return log_likelihood
    return jnp.where(jnp.any(jnp.isnan(potentials.rows)), jnp.nan, log_likelihood)


def run_chunks(
    program: Program, data: Data, params: Params, overlap: jax.Array, boundary: Boundary | None
) -> tuple[Statistics, jax.Array]:
    """All chunks once, each from `overlap` rows before it or from its boundary messages: statistics of all data
    without base measure, and how far the chunks disagree."""
    layout = program.trimmed(data.layout, overlap if boundary is None else 0, 0 if boundary else program.overlaps[-1])
    wanted, warm = Wanted(messages=True), Boundary(start=stitch.warm_start(params["transition"]))

    def one(potentials: Potentials, pull: Pull, _: Any, chunks: Layout, ends: Boundary | None) -> Any:
        found = chunk_statistics(potentials, chunks, wanted, ends or warm, backend=program.backend)
        likelihood = defined(data, potentials, found.log_likelihood)
        steps = stitch.boundary_steps(potentials, chunks.begin)
        return Statistics(likelihood, *found[1:4], pull(found)), (steps, found.messages)

    found, joints = by_blocks(program, data, params, one, layout, boundary)
    steps, messages = jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), joints)
    gap = stitch.inner_gap(lambda: steps, data.layout.left > 0, messages)
    return jax.tree.map(lambda each: jnp.sum(each, axis=0), found), gap


def propagated(program: Program, data: Data, params: Params) -> Boundary:
    """Exact messages at the boundaries of all chunks, by transfer operators."""
    n = program.model.n_states

    def one(potentials: Potentials, _: Any, origin: Any, chunks: Layout) -> jax.Array:
        return stitch.transfer_operators(program.backend, potentials, chunks)

    # In spans of their own length: a message from behind belongs to the last row of a span.
    operators = by_blocks(program, data, params, one, program.trimmed(data.layout, 0, 0)).reshape(-1, n, n)
    ends = jnp.append(data.layout.left[1:] == 0, True)
    forward, _ = stitch.propagate(jnp.full(n, -jnp.log(float(n))), operators, jnp.zeros(ends.shape, bool))
    return Boundary(forward, stitch.propagate_backward(jnp.zeros(n), operators, ends)[0])


def _with_gaps(rows: Rows) -> Rows:
    """Rows with NaN for what is missing; whole numbers stay so where nothing is."""
    values = rows.values if rows.observed.all() else np.where(rows.observed, rows.values, np.nan)
    return rows._replace(values=values, observed=None)


def _read_on_host(source: Sequences, origin: jax.Array, size: int, lags: int) -> Rows:
    """Rows from `origin` on, read in the middle of a program."""
    example = _typed(source, _with_gaps(source.rows(0, 1, lags)))
    shapes = jax.tree.map(
        lambda each: jax.ShapeDtypeStruct((size, *each.shape[1:], each.dtype.itemsize), np.uint8), example
    )

    def read(at: Any) -> Rows:
        # It touches NumPy only: it must not wait for the program that waits for it. Numbers travel as bytes, since the
        # thread that calls knows nothing of the scope's double precision and would cut them short.
        rows = _typed(source, _with_gaps(source.rows(int(at), int(at) + size, lags)))
        return jax.tree.map(lambda each: np.ascontiguousarray(each)[..., None].view(np.uint8), rows)

    def typed(raw: jax.Array, like: np.ndarray) -> jax.Array:
        if like.dtype.itemsize == 1:
            return raw[..., 0].view(like.dtype)
        return jax.lax.bitcast_convert_type(raw, like.dtype)

    return jax.tree.map(typed, jax.pure_callback(read, shapes, origin), example)


def _typed(source: Sequences, rows: Rows) -> Rows:
    """Values in one type, whether some are missing or not."""
    kind = np.float64 if source.dtype.kind == "f" or source.has_mask else source.dtype
    return rows._replace(values=rows.values.astype(kind))
