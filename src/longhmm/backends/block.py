"""What a pass does with one block of chunks, near the data: read, evaluate, compare boundaries, reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends import stitch
from longhmm.backends.counts import lowering_with
from longhmm.backends.evaluate import SHARE, Pull, choose, chunk_statistics, lower
from longhmm.backends.programs import either, quick
from longhmm.backends.protocol import NO_KEY, Backend, Boundary, PathsGiven, PathsWanted, Potentials, Wanted
from longhmm.backends.read import CHUNK, COPIED_ROWS, Read, Reader
from longhmm.backends.varying import with_moves
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
    """What a reducer is told of a block that owns the rows `[start, stop)`: probabilities `(rows, K)`, smoothed or
    filtered, where they were asked for, and what the collector returned of these rows, or its sums over them."""

    start: int
    stop: int
    probabilities: np.ndarray | None
    collected: Any


# Makes something small of the rows of a block, before anything leaves the place where they are.
Reducer = Callable[[Own], Any]
# Chunks from which on a single block shares programs, and their rooms: that of a copied block, and a larger one. What
# is empty at the end is passed over, but not free: messages of every chunk are compared.
FEW, ROOMS = 32, (COPIED_ROWS // CHUNK, 5 * (COPIED_ROWS // CHUNK))
# A program of its own: of covariance matrices it takes long to compile, and several others need it.
_natural = quick(lambda size, emission, params: lowering_with(emission, size).natural(params), static_argnums=0)


class How(NamedTuple):
    """What is constant in a pass: checked parameters, what is asked for, how data are cut into chunks and blocks."""

    params: Mapping[str, np.ndarray]
    collect: Collector | None = None
    reduce: Reducer | None = None
    forward_only: bool = False
    probabilities: bool = False
    per_chunk: bool = False  # log likelihoods of every chunk, without base measure, instead of their sums
    chunk: int = 0  # rows of a chunk; 0: as suits the data
    per_block: int = 0  # chunks of a block; 0: as suits the data
    mixed: Any = None  # a `Mixed` that the kernel hands predicted states to, here and forward only


class Asked(NamedTuple):
    """One block: which, by how many rows its chunks start early, the messages at their boundaries, if known, whether
    transfer operators `(W, K, K)` are asked for instead of marginals; and of paths, what (see `PathsGiven`)."""

    block: int = 0
    overlap: int = 0
    inner: bool = False  # whatever lies behind it
    boundary: Boundary | None = None
    operators: bool = False
    paths: PathsWanted | None = None
    following: np.ndarray | None = None
    log_space: bool = False
    key: np.ndarray = NO_KEY

    @property
    def around(self) -> int:
        """Rows on either side of the block that are needed; a path is followed from the row behind a chunk."""
        return self.overlap if self.paths is None else max(self.overlap, 1)


class Outcome(NamedTuple):
    """Of one block, on the host."""

    found: Any  # sums over its rows, without probabilities and messages; or paths, with the states of its rows
    natural: dict[str, np.ndarray]  # derivatives, where the emission has no lowering and no rows are asked for
    own: Any  # what the reducer made of the block's rows, or these as they are
    gap: float  # the largest disagreement of its chunks, and how far what lies behind may still change the last
    step: np.ndarray  # log weights `(K, K)` of the step into its first row
    forward_in: np.ndarray  # messages `(K,)` with which its first chunk began, and that left its last
    forward_out: np.ndarray
    impossible: int  # a row of the data that no reachable state can have produced, or -1


class Blocks:
    """Everything that many blocks of one pass need; `memory` is what folds paths."""

    memory: Any = None

    def __init__(self, how: How, model: HMM, sequences: Sequences) -> None:
        self.model, self.sequences = model, sequences
        self.reader = Reader(model, sequences, table=True)
        self.partition = Partition(sequences.offsets, chunk := how.chunk or self.reader.chunk)
        rows = self.reader.block_rows(copied=how.probabilities or how.collect is not None)
        self.how = how._replace(chunk=chunk, per_block=how.per_block or max(1, rows // chunk))
        self.n_blocks = -(-self.partition.n_blocks // self.how.per_block)
        self._placed: tuple[int, int, Layout] | None = None
        # Of data that are a single block, which is asked for several times: what was read, and evaluated.
        self._kept: tuple[Read | None, Potentials | None] = (None, None)
        self.backend = choose(self.reader.kind, model.n_states, model.transitions.varies)
        self.fused = self.backend.in_place and self.reader.lowering is not None
        self.room = self._room(self.partition.n_blocks) if self.n_blocks == 1 else self.how.per_block
        with jax.enable_x64(True):
            self.params = {name: np.asarray(value) for name, value in how.params.items()}
            self.natural = (own := self.reader.lowering) and _natural(own.pack, model.emission, self.params)

    def each(self, asked: Iterable[Asked]) -> Iterator[Any]:
        """What `run` gives of some blocks, in order, wherever the executor of the data runs them."""
        executor = self.sequences.executor
        work = (lambda model, sequences: self.run) if executor.here else partial(_elsewhere, self.how)
        return executor.run(work, self.model, self.sequences, map(self._task, asked))

    def _task(self, asked: Asked) -> Task:
        start, stop = self.bounds(asked.block, asked.around)
        gives_rows = self.how.probabilities and self.how.reduce is None and not asked.operators
        gives_rows = gives_rows if asked.paths is None else asked.paths.states > 0
        return Task(asked, max(0, start - asked.around), min(stop + asked.around, self.sequences.length), gives_rows)

    def chunks(self, index: int) -> np.ndarray:
        """The numbers of a block's chunks."""
        begin = index * self.how.per_block
        return np.arange(begin, min(begin + self.how.per_block, self.partition.n_blocks))

    def place(self, index: int, around: int | None = None) -> Layout:
        """Where the chunks of a block lie, with so many rows around each, or any; the one last asked for is kept."""
        at = self._placed
        if at is None or at[0] != index or around not in (None, at[1]):
            at = self._placed = (index, around or 0, self.partition.locate(self.chunks(index), around or 0))
        return at[2]

    def bounds(self, index: int, around: int | None = None) -> tuple[int, int]:
        """Rows `[start, stop)` that block `index` owns."""
        place = self.place(index, around)
        return int(place.begin[0]), int(place.begin[-1] + place.core[-1])

    def joined(self, index: int) -> np.ndarray:
        """`(W,)`, True where a chunk of a block continues the chunk before it, in whatever block."""
        place = self.place(index)
        joined = np.zeros(self.room, bool)
        joined[: place.size] = ~(place.opens & (place.left == 0))
        return joined

    def _room(self, chunks: int) -> int:
        if not self.backend.in_place or chunks < FEW:
            return ladder(chunks)
        return next((room for room in ROOMS if chunks <= room), self.how.per_block)

    def run(self, asked: Asked) -> Any:
        """An `Outcome`, or transfer operators."""
        with jax.enable_x64(True):
            block, read = self._read(asked)  # what it lends to the kernel lives as long as this name
            if asked.operators:
                best = asked.paths is not None and not asked.paths.drawn
                return np.asarray(_transfers[self.fused](block, self.backend, best))
            if asked.paths is None:
                return self._marginals(asked, block, read)
            return self._paths(asked, asked.paths, block, read)

    def _read(self, asked: Asked) -> tuple[_Block, Read]:
        around = asked.around
        place = self.place(asked.block, around)
        lo, hi = int(place.begin[0] - place.left[0]), int(np.max(place.begin + place.core + place.right))
        joined = self.joined(asked.block)
        if asked.inner:
            joined = np.pad(joined, (0, self._room(len(joined)) - len(joined)))
        layout = place.moved(lo).padded(len(joined))
        # A forward recursion needs nothing behind a chunk, a path the next state.
        behind = 1 if asked.paths is not None else 0 if self.how.forward_only else around
        spans = (0, 0, 0) if self.backend.in_place else (asked.overlap, self.how.chunk, behind)
        layout = layout.trimmed(asked.overlap, behind, spans)
        # Lengths from a ladder: data of similar size share compiled programs.
        most = -(-(self.how.per_block * self.how.chunk + 2 * around) // SHARE) * SHARE
        size = ladder(hi - lo) if self.n_blocks == 1 else max(hi - lo, most)
        own, whole = self.bounds(asked.block), self.how.collect is not None
        read, potentials = self._kept
        if read is None:
            read = self.reader.read(lo, hi, size, own, borrow=self.fused, whole=whole)
            if read.numbers is not None:
                lowering: Any = self.reader.lowering
                given = (self.natural, self.params["transition"], self.params["initial"])
                potentials = Potentials(read.numbers, *given, lowering.kind, lowering.width, lowering.sums)
            self._kept = (read, potentials) if self.n_blocks == 1 else (None, None)
        if read.numbers is None and asked.boundary is None:  # one program finds messages, whatever the overlap
            potentials = None
        source = () if read.rows is read.moves else (self.model, self.params, read.rows, read.moves)  # both None
        mixed = None if self.how.mixed is None else self.how.mixed.begin(lo)
        return _Block(potentials, layout, joined, *source)._replace(mixed=mixed), read

    def _marginals(self, asked: Asked, block: _Block, read: Read) -> Outcome:
        how, (start, stop) = self.how, self.bounds(asked.block)
        gamma = read.size if how.probabilities or how.collect is not None else 0
        wanted = Wanted(how.per_chunk, how.forward_only, gamma, messages=True, transitions=not how.probabilities)
        ending = self._ending(asked, block.layout)
        run = _run[self.fused and how.collect is None]
        results = run(block, asked.boundary, ending, backend=self.backend, wanted=wanted, collect=how.collect)
        found, natural, collected, gap, step, (began, left), undefined = jax.tree.map(np.asarray, results)
        self._refuse_undefined(read.start, undefined)
        rows = slice(start - read.start, stop - read.start)
        probabilities = found.gamma[rows] if how.probabilities else None
        if probabilities is not None and probabilities.ndim > 2:
            probabilities = probabilities.sum(axis=1)  # over the states before
        own: Any = Own(start, stop, probabilities, collected)
        if how.probabilities:
            own = own._replace(collected=jax.tree.map(lambda each: each[rows], collected))
        own = own if how.reduce is None else how.reduce(own)
        impossible = -1 if found.impossible < 0 else read.start + int(found.impossible)
        likelihood = found.log_likelihood + (0.0 if how.per_chunk else read.log_base_measure)
        found = found._replace(log_likelihood=likelihood, gamma=None, impossible=None)
        return Outcome(found, natural, own, float(gap), step, began, left, impossible)

    def _paths(self, asked: Asked, paths: PathsWanted, block: _Block, read: Read) -> Outcome:
        # Where messages are given, maps come with them: one program finds both.
        maps = paths.maps or (asked.boundary is not None and not paths.states)
        wanted = paths._replace(states=read.size if paths.states else 0, maps=maps)
        forward = None if asked.boundary is None else asked.boundary.forward
        given = PathsGiven(forward, asked.following, asked.log_space, asked.key, np.int64(read.start))
        *results, potentials = _find[self.fused](block, given, backend=self.backend, wanted=wanted)
        if self._kept[0] is not None and potentials is not None:
            self._kept = (read, potentials)
        found, gap, step, undefined = jax.tree.map(np.asarray, results)
        self._refuse_undefined(read.start, undefined)
        start, stop = self.bounds(asked.block)
        last, impossible = len(self.chunks(asked.block)) - 1 if paths.messages else 0, -1
        if paths.messages and np.any(np.all(np.isneginf(found.forward_out), axis=1)):
            impossible = max(start, self.run(asked._replace(paths=None)).impossible)
        found = found._replace(states=found.states[start - read.start : stop - read.start])
        ends = (found.forward_in[0], found.forward_out[last])
        return Outcome(found, {}, None, float(gap), step, *ends, impossible)

    def _ending(self, asked: Asked, layout: Layout) -> tuple[Layout, bool] | None:
        """The rows behind the last chunk as a chunk of their own, where they may be cut off, and whether they were."""
        alone = self.n_blocks == 1 and self.room <= ROOMS[-1]
        if asked.boundary is not None or asked.inner or self.how.forward_only or alone:
            return None
        chunks = self.chunks(asked.block)
        open_end = int(self.partition.locate(chunks[-1:], asked.overlap + 1).right[0]) > asked.overlap
        stop = int(layout.begin[len(chunks) - 1] + layout.core[len(chunks) - 1])
        # Where the sequence ends, any row will do.
        begin, core = (stop, asked.overlap) if open_end else (stop - 1, 1)
        spans = (0, asked.overlap, 0) if any(layout.spans) else (0, 0, 0)
        at, rows, none = (np.array([each], np.int32) for each in (begin, core, 0))
        return Layout(at, none, rows, none, none, spans), open_end

    def _refuse_undefined(self, start: int, row: np.ndarray | None) -> None:
        if row is not None and row >= 0:
            raise ModelError(
                f"params gave a log density that is not a number for {self.sequences.describe(start + int(row))}: "
                "every parameter must be finite and inside its support."
            )


def _elsewhere(how: How, model: HMM, sequences: Sequences) -> Callable[[Asked], Any]:
    """What runs blocks, for an executor."""
    return Blocks(how, model, sequences).run


class _Block(NamedTuple):
    """A block as compiled functions see it: potentials where the emission has a lowering or they are kept; its chunks,
    and which of them go on from the one before; else, or for a collector, rows with the model and its parameters."""

    potentials: Potentials | None
    layout: Layout
    joined: Any
    model: Any = None
    params: Any = None
    rows: Any = None
    beside: Any = None  # where transitions vary, their numbers
    mixed: Any = None  # as in `Potentials`

    def evaluated(self) -> tuple[Potentials, Pull, jax.Array | None]:
        """Potentials, their pull-back, and the first row whose density is not a number, or -1; None where all have."""
        if self.potentials is not None:
            return *with_moves(self.potentials, self.model, self.params, self.beside), None
        potentials, pull = lower(self.model, self.params, self.rows)

        def find() -> jax.Array:
            wrong = jnp.any(jnp.isnan(potentials.rows), axis=tuple(range(1, potentials.rows.ndim)))
            return jnp.where(jnp.any(wrong), jnp.argmax(wrong), -1)

        # A sum costs little: rows are looked at one by one only where it is no number.
        return potentials, pull, jax.lax.cond(jnp.isnan(jnp.sum(potentials.rows)), find, lambda: -1)


@partial(either, static_argnames=("backend", "wanted", "collect"))
def _run(
    block: _Block, boundary: Boundary | None, ending: Any, *, backend: Backend, wanted: Wanted, collect: Any
) -> tuple[Any, ...]:
    """Statistics, derivatives and what was collected, the disagreement of chunks, the step into the first, the messages
    that the first began with and that left the last, and a row without a density, if any."""
    potentials, pull, undefined = block.evaluated()
    potentials = replace(potentials, mixed=block.mixed)
    ends = Boundary(start=stitch.warm_start(potentials.transition)) if boundary is None else boundary
    found = chunk_statistics(potentials, block.layout, wanted, ends, backend=backend)
    collected = None if collect is None else collect(block.model, block.params, block.rows, found.gamma)
    messages: Any = found.messages
    outer = messages.forward_in[0], messages.forward_out[jnp.sum(jnp.asarray(block.layout.core) > 0) - 1]  # others pad
    steps, gap = partial(stitch.boundary_steps, potentials), jnp.zeros(())
    if boundary is None:
        into = partial(steps, block.layout.begin)
        gap = stitch.inner_gap(into, block.joined, messages[: 2 if wanted.forward_only else 4])
    if ending is not None:
        rows, open_end = ending
        behind = stitch.transfer_operators(backend, potentials, rows)[0]
        gap = jnp.maximum(gap, jnp.where(open_end, stitch.open_gap(outer[1], behind), 0.0))
    natural: dict[str, jax.Array] = {}
    if not (wanted.forward_only or wanted.gamma):
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(pull, found))  # what does not agree is run again
        natural = jax.lax.cond(gap <= stitch.TOLERANCE, pull, lambda _: nothing, found)
    asked = found._replace(centred=None, gamma=found.gamma if wanted.gamma else None, pairs=None, messages=None)
    return asked, natural, collected, gap, steps(block.layout.begin[:1])[0], outer, undefined


@partial(either, static_argnames=("backend", "wanted"))
def _find(
    block: _Block, given: PathsGiven, *, backend: Backend, wanted: PathsWanted
) -> tuple[Any, jax.Array, jax.Array, jax.Array | None, Potentials | None]:
    """Paths, the disagreement of chunks, the step into the first, a row without a density, if any, and potentials where
    they were evaluated from rows."""
    potentials, _, undefined = block.evaluated()
    found, steps = stitch.find_paths(backend, potentials, block.layout, given, wanted)
    best = not wanted.drawn
    gap = stitch.inner_gap(lambda: steps, block.joined, found[:2], best) if wanted.messages else jnp.zeros(())
    return found, gap, steps[0], undefined, potentials if block.potentials is None else None


@partial(either, static_argnames=("backend", "best"))
def _transfers(block: _Block, backend: Backend, best: bool) -> jax.Array:
    return stitch.transfer_operators(backend, block.evaluated()[0], block.layout, best)
