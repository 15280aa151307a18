"""What a pass does with one block of chunks, near the data: read, evaluate, compare boundaries, reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import Potentials, choose, chunk_statistics, lower
from longhmm.backends.protocol import Backend, Boundary, ChunkStatistics, Lowered, Wanted
from longhmm.backends.read import Reader
from longhmm.backends.stitch import inner_disagreement, one_step, open_gap, transfer_operators, warm_start
from longhmm.data.executor import Task
from longhmm.data.layout import Layout, Partition, ladder
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM

# Called inside the compiled block as collect(model, params, rows, weights) with weights (n, K): the smoothed (or
# filtered) probabilities of core rows, zero elsewhere. Returns a tree of arrays: sums over rows where a pass is asked
# for totals, an entry for each of them where it is asked for rows.
Collector = Callable[[HMM, Mapping[str, jax.Array], Rows, jax.Array], Any]


class Own(NamedTuple):
    """What a reducer is told of a block that owns the rows `[start, stop)`.

    Attributes:
        probabilities: `(rows, K)`, smoothed or filtered, where they were asked for.
        collected: what the collector returned of these rows, or its sums over them.
    """

    start: int
    stop: int
    probabilities: np.ndarray | None
    collected: Any


# Makes something small of the rows of a block, before anything leaves the place where they are.
Reducer = Callable[[Own], Any]


class How(NamedTuple):
    """What is constant in a pass: checked parameters, what is asked for, how data are cut into chunks and blocks."""

    params: dict[str, np.ndarray]
    forward_only: bool
    probabilities: bool
    collect: Collector | None
    reduce: Reducer | None
    chunk: int
    per_block: int
    per_chunk: bool = False  # log likelihoods of every chunk, without base measure, instead of their sums


class Asked(NamedTuple):
    """One block: which, by how many rows its chunks start early, the messages at their boundaries, if known, and
    whether transfer operators `(W, K, K)` are asked for instead."""

    block: int
    overlap: int = 0
    boundary: Boundary | None = None
    operators: bool = False


class Outcome(NamedTuple):
    """Of one block, on the host.

    Attributes:
        statistics: sums over its rows, without probabilities and messages.
        natural: derivatives with respect to natural parameters, where the emission has no lowering.
        own: what the reducer made of the block's rows, or these as they are.
        gap: the largest disagreement of its chunks, and how far what lies behind them may still change the last.
        forward_in, forward_out: messages `(K,)` with which its first chunk began, and that left its last.
        impossible: a row of the data that no reachable state can have produced, or -1.
    """

    statistics: ChunkStatistics
    natural: dict[str, np.ndarray]
    own: Any
    gap: float
    forward_in: np.ndarray
    forward_out: np.ndarray
    impossible: int


class Blocks:
    """Everything that many blocks of one pass need."""

    least_overlap = 0

    def __init__(self, how: How, model: HMM, sequences: Sequences) -> None:
        self.how, self.model, self.sequences = how, model, sequences
        self.reader = Reader(model, sequences)
        self.partition = Partition(sequences.offsets, how.chunk)
        self.n_blocks = -(-self.partition.n_blocks // how.per_block)
        self.backend = choose(self.reader.kind, model.n_states, model.transitions.varies)
        self.borrow = self.backend.name == "cpp" and self.reader.lowering is not None
        with jax.enable_x64(True):
            self.params = {name: jnp.asarray(value) for name, value in how.params.items()}
            self.natural = None if self.reader.lowering is None else _natural(model, self.params)

    def each(self, asked: Iterable[Any]) -> Iterator[Any]:
        """What `run` gives of some blocks, in order, wherever the executor of the data runs them."""
        executor = self.sequences.executor
        work = (lambda model, sequences: self.run) if executor.here else partial(_elsewhere, type(self), self.how)
        return executor.run(work, self.model, self.sequences, map(self._task, asked))

    def _task(self, asked: Any) -> Task:
        start, stop = self.bounds(asked.block)
        around = max(asked.overlap, self.least_overlap)
        return Task(asked, max(0, start - around), min(stop + around, self.sequences.length), self.gives_rows(asked))

    def gives_rows(self, asked: Any) -> bool:
        """Whether what `run` gives is as long as the block's rows."""
        return self.how.probabilities and self.how.reduce is None and not asked.operators

    def chunks(self, index: int) -> np.ndarray:
        """The numbers of a block's chunks."""
        begin = index * self.how.per_block
        return np.arange(begin, min(begin + self.how.per_block, self.partition.n_blocks))

    def bounds(self, index: int) -> tuple[int, int]:
        """Rows `[start, stop)` that block `index` owns."""
        place = self.partition.locate(self.chunks(index)[[0, -1]], 0)
        return int(place.begin[0]), int(place.begin[1] + place.core[1])

    def joined(self, index: int) -> np.ndarray:
        """`(W,)`, True where a chunk of a block continues the chunk before it, in whatever block."""
        chunks = self.chunks(index)
        size = ladder(len(chunks)) if self.n_blocks == 1 else self.how.per_block
        return np.pad(~np.asarray(self.partition.locate(chunks, 0).opens), (0, size - len(chunks)))

    def run(self, asked: Asked) -> Any:
        """An `Outcome`, or transfer operators."""
        how = self.how
        with jax.enable_x64(True):
            placed = self._placed(asked)  # what it lends to the kernel lives as long as this name
            model = self.model if placed.rows is not None else None
            given = (self.params, placed.lowered, placed.rows, placed.layout)
            if asked.operators:
                return np.asarray(_transfers(model, self.backend, *given))
            gamma = placed.size if how.probabilities or how.collect is not None else 0
            wanted = Wanted(per_chunk=how.per_chunk, forward_only=how.forward_only, gamma=gamma, messages=True)
            ending = self._ending(asked, placed.layout)
            joined = self.joined(asked.block)
            found = _run(model, self.backend, wanted, how.collect, *given, joined, asked.boundary, ending)
            found = jax.tree.map(np.asarray, found)
        statistics, natural, collected, gap, undefined = found
        self._refuse_undefined(int(undefined), placed.origin)
        start, stop = self.bounds(asked.block)
        rows = slice(start - placed.origin, stop - placed.origin)
        messages = statistics.messages
        forward_in, forward_out = messages.forward_in[0], messages.forward_out[_last(placed.layout)]
        probabilities = statistics.gamma[rows] if how.probabilities else None
        if probabilities is not None and self.model.emission.couples:
            probabilities = probabilities.sum(axis=1)  # over the states before
        collected = jax.tree.map(lambda each: each[rows], collected) if how.probabilities else collected
        own: Any = Own(start, stop, probabilities, collected)
        impossible = int(statistics.impossible)
        statistics = statistics._replace(gamma=None, messages=None, impossible=None)
        return Outcome(
            statistics._replace(
                log_likelihood=statistics.log_likelihood + (0.0 if how.per_chunk else placed.log_base_measure)
            ),
            natural,
            own if how.reduce is None else how.reduce(own),
            float(gap),
            forward_in,
            forward_out,
            impossible if impossible < 0 else placed.origin + impossible,
        )

    def _placed(self, asked: Asked) -> _Placed:
        place = self.partition.locate(self.chunks(asked.block), asked.overlap)
        lo, hi = int(place.begin[0] - place.left[0]), int(np.max(place.begin + place.core + place.right))
        spans = (0, 0, 0) if self.backend.name == "cpp" else (asked.overlap, self.how.chunk, asked.overlap)
        layout = replace(place.moved(lo), spans=spans).padded(len(self.joined(asked.block)))
        # Lengths from a ladder: data of similar size share compiled programs.
        size = hi - lo if self.n_blocks > 1 else ladder(hi - lo)
        size = max(size, self.how.per_block * self.how.chunk + 2 * asked.overlap) if self.n_blocks > 1 else size
        start, stop = self.bounds(asked.block)
        read = self.reader.read(lo, hi, size, (start, stop), borrow=self.borrow, whole=self.how.collect is not None)
        lowered = None
        if read.numbers is not None:
            lowering = self.reader.lowering
            assert lowering is not None
            lowered = Lowered(read.numbers, self.natural, lowering.kind, lowering.width, lowering.sums)
        return _Placed(lowered, read.rows, layout, lo, size, read.log_base_measure, read.memory)

    def _ending(self, asked: Asked, layout: Layout) -> _Ending | None:
        """What lies behind the last chunk, where that may be cut off."""
        if asked.boundary is not None or self.how.forward_only or self.n_blocks == 1:
            return None
        last = _last(layout)
        chunk = asked.block * self.how.per_block + last
        open_end = int(self.partition.locate([chunk], asked.overlap + 1).right[0]) > asked.overlap
        stop = int(layout.begin[last] + layout.core[last])
        # Where the sequence ends, any row will do.
        begin, core = (stop, asked.overlap) if open_end else (stop - 1, 1)
        spans = (0, asked.overlap, 0) if any(layout.spans) else (0, 0, 0)
        nothing = np.zeros(1, np.int32)
        rows = Layout(np.array([begin], np.int32), nothing, np.array([core], np.int32), nothing, nothing, spans)
        return _Ending(rows, open_end)

    def _refuse_undefined(self, row: int, origin: int) -> None:
        if row >= 0:
            raise ModelError(
                f"params gave a log density that is not a number for {self.sequences.describe(origin + row)}: every "
                "parameter must be finite and inside its support."
            )


class _Ending(NamedTuple):
    """The rows behind the last chunk of a block as a chunk of their own, and whether their sequence goes on."""

    layout: Layout
    open_end: Any


def _last(layout: Layout) -> int:
    """The last chunk that is none of the padding."""
    return int(np.count_nonzero(layout.core)) - 1


class _Placed(NamedTuple):
    """A block that has been read: its potentials or rows, its chunks in them, the row of the data at which it begins,
    how many rows there is room for, what was left out of the likelihood, and memory that is in use meanwhile."""

    lowered: Lowered | None
    rows: Rows | None
    layout: Layout
    origin: int
    size: int
    log_base_measure: float
    memory: Any


def _elsewhere(kind: type[Blocks], how: How, model: HMM, sequences: Sequences) -> Callable[[Any], Any]:
    """What runs blocks, for an executor."""
    return kind(how, model, sequences).run


_natural = jax.jit(lambda model, params: model.emission.lowering.natural(params))


@partial(jax.jit, static_argnames=("backend", "wanted", "collect"))
def _run(
    model: HMM | None,
    backend: Backend,
    wanted: Wanted,
    collect: Collector | None,
    params: Mapping[str, jax.Array],
    lowered: Lowered | None,
    rows: Rows | None,
    layout: Layout,
    joined: Any,
    boundary: Boundary | None,
    ending: _Ending | None,
) -> tuple[ChunkStatistics, dict[str, jax.Array], Any, jax.Array, jax.Array]:
    """Statistics, derivatives and what was collected, the disagreement of chunks, and a row without a density or -1."""
    potentials, undefined = block_potentials(model, params, lowered, rows)
    start = warm_start(params["transition"]) if boundary is None else None
    found = chunk_statistics(
        backend, potentials, params["initial"], layout, boundary=boundary or Boundary(), start=start, wanted=wanted
    )
    natural = {} if lowered is not None or wanted.forward_only else potentials.pull(found)
    collected = None
    if collect is not None:
        assert model is not None and rows is not None
        collected = collect(model, params, rows, found.gamma)
    assert found.messages is not None
    step = params["transition"] if model is None else one_step(model, params["transition"])
    gap = jnp.zeros(())
    if boundary is None:
        gap = inner_disagreement(step, found.messages, joined, wanted.forward_only)
    if ending is not None:
        behind = chunk_transfers(backend, potentials, params["initial"], ending.layout)[0]
        leaving = found.messages.forward_out[jnp.sum(jnp.asarray(layout.core) > 0) - 1]
        gap = jnp.maximum(gap, jnp.where(ending.open_end, open_gap(leaving, behind), 0.0))
    return found, natural, collected, gap, undefined


@partial(jax.jit, static_argnames=("backend",))
def _transfers(
    model: HMM | None,
    backend: Backend,
    params: Mapping[str, jax.Array],
    lowered: Lowered | None,
    rows: Rows | None,
    layout: Layout,
) -> jax.Array:
    potentials, _ = block_potentials(model, params, lowered, rows)
    return chunk_transfers(backend, potentials, params["initial"], layout)


def chunk_transfers(backend: Backend, potentials: Potentials, initial: jax.Array, layout: Layout) -> jax.Array:
    """Transfer operators `(W, K, K)` of chunks without overlap; where one opens its sequence, the same for all."""

    def forward(before: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = chunk_statistics(
            backend, potentials, initial, layout,
            boundary=Boundary(before), wanted=Wanted(per_chunk=True, forward_only=True, messages=True),
        )  # fmt: skip
        assert found.messages is not None
        return found.log_likelihood, found.messages.forward_out

    return transfer_operators(forward, initial.shape[-1], layout.size, initial.dtype)


def block_potentials(
    model: HMM | None, params: Mapping[str, jax.Array], lowered: Lowered | None, rows: Rows | None
) -> tuple[Potentials, jax.Array]:
    """Potentials, and the first row whose density is not a number, or -1."""
    if lowered is not None:
        return Potentials(lowered, params["transition"], lambda found: {}), jnp.asarray(-1)
    assert model is not None and rows is not None
    potentials = lower(model, params, rows)
    undefined = jnp.any(jnp.isnan(potentials.lowered.rows), axis=tuple(range(1, potentials.lowered.rows.ndim)))
    return potentials, jnp.where(jnp.any(undefined), jnp.argmax(undefined), -1)
