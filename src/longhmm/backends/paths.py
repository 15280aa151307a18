"""Whole paths of states over data of any length: the most probable one, or draws from their posterior.

A path is fixed from the end backwards, so it takes two sweeps (see `ChunkPaths`), after one that makes the messages
before all chunks exact. Memory holds a few numbers per chunk and the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.block import Asked, Blocks, How, _potentials
from longhmm.backends.drawn_path import find
from longhmm.backends.protocol import NO_STATE, Backend, ChunkPaths, Lowered, PathsWanted, Uniforms
from longhmm.backends.stitch import (
    OVERLAPS,
    SCORE_TOLERANCE,
    TOLERANCE,
    boundary_steps,
    forward_gap,
    inner_forward_gap,
    propagate_forward,
    transfer_operators,
)
from longhmm.backends.stream import Progress, Stream
from longhmm.data.executor import Task
from longhmm.data.layout import Layout
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError
from longhmm.model.hmm import HMM

NO_KEY = np.zeros(2, np.uint32)


class FilteredMessages(NamedTuple):
    """What many draws at the same parameters share: log messages `(W, K)` before every chunk of each block, and whether
    they were found in log space throughout."""

    before: list[np.ndarray]
    log_space: bool


def best_path(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, progress: Progress | None = None
) -> np.ndarray:
    """The most probable path of states (Viterbi), `(T,)`, exact for every sequence."""
    paths = _Paths(model, params, sequences, drawn=False)
    path = paths.join(paths.messages(), NO_KEY, progress)
    assert path is not None
    return path


def sampled_path(
    model: HMM,
    params: Mapping[str, Any],
    sequences: Sequences,
    key: jax.Array,
    progress: Progress | None = None,
    *,
    messages: FilteredMessages | None = None,
) -> np.ndarray:
    """One path of states drawn from `P(x | all y)`, `(T,)`. `messages`, from `filtered_messages`, serve many draws."""
    paths = _Paths(model, params, sequences, drawn=True)
    words = np.asarray(jax.random.key_data(key)).ravel()[:2]
    path = paths.join(paths.messages() if messages is None else messages, words, progress)
    if path is None:
        path = paths.join(paths.messages(log_space=True), words, progress)
    assert path is not None
    return path


def filtered_messages(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> FilteredMessages:
    """Distribution of the state before every chunk given the rows before it, for `sampled_path`."""
    return _Paths(model, params, sequences, drawn=True).messages()


class PathAsked(NamedTuple):
    """One block: which, by how many rows its chunks start early, and what a backend is told (see `Backend.paths`);
    without `wanted`, transfer operators are asked for."""

    index: int
    overlap: int
    wanted: PathsWanted | None
    drawn: bool
    log_space: bool
    forward: Any = None
    following: Any = None
    key: np.ndarray = NO_KEY


class PathBlock(NamedTuple):
    """Of one block: paths through its chunks, their largest disagreement, and the step `(K, K)` into the first."""

    paths: ChunkPaths
    gap: float
    step: np.ndarray


class PathBlocks(Blocks):
    """Blocks on whose chunks paths are found."""

    def find(self, asked: PathAsked) -> Any:
        """A `PathBlock`, its states those of its own rows; or transfer operators `(W, K, K)`."""
        with jax.enable_x64(True), self._placed(Asked(asked.index, max(asked.overlap, 1))) as placed:
            spans = (asked.overlap, self.how.chunk, 1) if any(placed.layout.spans) else placed.layout.spans
            layout = placed.layout.trimmed(asked.overlap, 1, spans)
            model = self.model if placed.rows is not None else None
            inputs = (model, self.backend, self.params, placed.lowered, placed.rows, layout)
            if asked.wanted is None:
                return np.asarray(_transfers(*inputs, asked.drawn))
            wanted = asked.wanted._replace(states=placed.size if asked.wanted.states else 0)
            joined, uniforms = self.joined(asked.index), Uniforms(asked.key, np.int64(placed.origin))
            found = _find(*inputs, joined, asked.forward, asked.following, uniforms, asked.log_space, wanted)
            paths, gap, step, undefined = jax.tree.map(np.asarray, found)
        self._refuse_undefined(int(undefined), placed.origin)
        start, stop = self.bounds(asked.index)
        states = paths.states[start - placed.origin : stop - placed.origin] if wanted.states else None
        return PathBlock(paths._replace(states=states), float(gap), step)


def find_blocks(how: How, model: HMM, sequences: Sequences) -> Callable[[PathAsked], Any]:
    """Paths through blocks, for an executor."""
    return PathBlocks(how, model, sequences).find


@partial(jax.jit, static_argnames=("model", "backend", "wanted"))
def _find(
    model: HMM | None,
    backend: Backend,
    params: Mapping[str, jax.Array],
    lowered: Lowered | None,
    rows: Rows | None,
    layout: Layout,
    joined: Any,
    forward: Any,
    following: Any,
    uniforms: Uniforms,
    log_space: Any,
    wanted: PathsWanted,
) -> tuple[ChunkPaths, jax.Array, jax.Array, jax.Array]:
    """Paths, the disagreement of chunks, the step into the first, and a row without a density or -1."""
    potentials, undefined = _potentials(model, params, lowered, rows)
    found = find(backend, potentials, params["initial"], layout, forward, following, uniforms, log_space, wanted)
    steps, gap = boundary_steps(potentials.lowered, potentials.transition, layout), jnp.zeros(())
    if wanted.messages:
        gap = inner_forward_gap(steps, found.forward_out, found.forward_in, joined, not wanted.drawn)
    return found, gap, steps[0], undefined


@partial(jax.jit, static_argnames=("model", "backend", "drawn"))
def _transfers(
    model: HMM | None,
    backend: Backend,
    params: Mapping[str, jax.Array],
    lowered: Lowered | None,
    rows: Rows | None,
    layout: Layout,
    drawn: bool,
) -> jax.Array:
    potentials, _ = _potentials(model, params, lowered, rows)

    def forward(before: jax.Array) -> tuple[jax.Array, jax.Array]:
        nothing, wanted = Uniforms(NO_KEY, 0), PathsWanted(drawn, messages=True)
        found = find(backend, potentials, params["initial"], layout, before, None, nothing, 1, wanted)
        return found.log_likelihood, found.forward_out

    return transfer_operators(forward, params["initial"].shape[-1], layout.size, jnp.float64)


class _Paths:
    """Work on the blocks of some data at some parameters."""

    def __init__(self, model: HMM, params: Mapping[str, Any], sequences: Sequences, *, drawn: bool) -> None:
        self.model, self.sequences, self.drawn = model, sequences, drawn
        self.stream = Stream(model, model.validate(params), sequences, forward_only=True)
        self.blocks = PathBlocks(self.stream.how, model, sequences)
        self.underflows = drawn and self.blocks.backend.underflows

    def messages(self, *, log_space: bool = False) -> FilteredMessages:
        """Messages before every chunk of each block (scores, for the best path), exact."""
        log_space = log_space or not self.underflows
        found: list[np.ndarray] = []
        last = np.zeros(self.model.n_states)
        for overlap in OVERLAPS:
            for block in self._run(self._asked(len(found), PathsWanted(self.drawn, messages=True), overlap, log_space)):
                self._refuse_impossible(len(found), block)
                if not self._agree(len(found), last, block):
                    break
                found.append(block.paths.forward_in)
                last = block.paths.forward_out[self._chunks(len(found) - 1) - 1]
            if len(found) == self.blocks.n_blocks:
                return FilteredMessages(found, log_space)
            if overlap >= np.diff(self.sequences.offsets).max():
                break
        if not log_space:
            return self.messages(log_space=True)
        for operators in self._run(self._asked(len(found), None, 0, log_space)):
            with jax.enable_x64(True):
                before, carry = propagate_forward(jnp.asarray(last), jnp.asarray(operators), best=not self.drawn)
            found.append(np.asarray(before))
            last = np.asarray(carry)
        return FilteredMessages(found, log_space)

    def join(self, messages: FilteredMessages, key: np.ndarray, progress: Progress | None) -> np.ndarray | None:
        """The path, from the messages before every chunk; None where these have to be found in log space."""
        given = messages.before
        backwards = range(self.blocks.n_blocks - 1, -1, -1)
        wanted = PathsWanted(self.drawn, messages=True, maps=True)
        asked = (PathAsked(i, 0, wanted, self.drawn, messages.log_space, given[i], None, key) for i in backwards)
        following: dict[int, np.ndarray] = {}
        state, onward = -1, False  # of the chunk to the right: its first state, and whether it continues the sequence
        for index, block in zip(backwards, self._run(asked), strict=True):
            self._refuse_impossible(index, block)
            maps, joined = block.paths.maps, self.blocks.joined(index)
            after = following[index] = np.full(len(joined), -1, np.int32)
            for chunk in range(self._chunks(index) - 1, -1, -1):
                after[chunk] = state if onward else -1
                state, onward = int(maps[chunk, after[chunk]]), joined[chunk]
                if self.underflows and not messages.log_space and (state == NO_STATE or block.paths.redone):
                    return None
        path = np.empty(self.sequences.length, np.int8 if self.model.n_states <= 127 else np.int16)
        wanted, indices = PathsWanted(self.drawn, states=1), range(self.blocks.n_blocks)
        asked = (
            PathAsked(i, 0, wanted, self.drawn, messages.log_space, given[i], following.pop(i), key) for i in indices
        )
        for index, block in enumerate(self._run(asked)):
            if block.paths.redone and not messages.log_space:
                return None
            start, stop = self.blocks.bounds(index)
            path[start:stop] = block.paths.states
            if progress is not None:
                progress(stop - start)
        return path

    def _asked(self, begin: int, wanted: PathsWanted | None, overlap: int, log_space: bool) -> Iterable[PathAsked]:
        indices = range(begin, self.blocks.n_blocks)
        return (PathAsked(index, overlap, wanted, self.drawn, log_space) for index in indices)

    def _run(self, asked: Iterable[PathAsked]) -> Iterator[Any]:
        executor = self.sequences.executor
        work = (lambda model, sequences: self.blocks.find) if executor.here else partial(find_blocks, self.stream.how)
        return executor.run(work, self.model, self.sequences, map(self._task, asked))

    def _task(self, asked: PathAsked) -> Task:
        start, stop = self.blocks.bounds(asked.index)
        around = max(0, start - max(asked.overlap, 1)), min(stop + max(asked.overlap, 1), self.sequences.length)
        return Task(asked, *around, gives_rows=asked.wanted is not None and asked.wanted.states > 0)

    def _chunks(self, index: int) -> int:
        """How many chunks a block has, without padding."""
        return min(self.blocks.how.per_block, self.blocks.cells.n_cells - index * self.blocks.how.per_block)

    def _agree(self, index: int, last: np.ndarray, block: PathBlock) -> bool:
        """Whether the chunks of a block agree with one another and with the last one of the block before."""
        gap, best = block.gap, not self.drawn
        if self.blocks.joined(index)[0]:
            with jax.enable_x64(True):
                between = forward_gap(*map(jnp.asarray, (block.step, last[None], block.paths.forward_in[:1])), best)
            gap = max(gap, float(between[0]))
        return gap <= (SCORE_TOLERANCE if best else TOLERANCE)

    def _refuse_impossible(self, index: int, block: PathBlock) -> None:
        if np.isneginf(block.paths.forward_out[: self._chunks(index)].max(axis=1)).any():
            self._refuse()

    def _refuse(self) -> NoReturn:
        for _ in self.stream.outcomes():  # raises, and names the row
            pass
        raise ImpossibleObservationError(
            f"No path of states has a positive probability for {self.sequences.name}: mark impossible observations as "
            "missing (NaN), or use an emission or transitions that allow them."
        )
