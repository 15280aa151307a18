"""Whole paths of states over data of any length: the most probable one, or draws from their posterior.

A path is fixed from the end backwards, so it takes two sweeps (see `ChunkPaths`), after one that makes the messages
before all chunks exact. Memory holds a few numbers per chunk, and the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.block import Asked, Blocks, block_potentials
from longhmm.backends.drawn_path import chunk_run, path_operators
from longhmm.backends.protocol import NO_STATE, Backend, ChunkPaths, Lowered, PathsWanted, Uniforms
from longhmm.backends.stitch import (
    OVERLAPS,
    SCORE_TOLERANCE,
    TOLERANCE,
    forward_gap,
    inner_forward_gap,
    propagate_forward,
)
from longhmm.backends.stream import Progress, Stream
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
    paths, words = _Paths(model, params, sequences, drawn=True), np.asarray(jax.random.key_data(key)).ravel()[:2]
    path = paths.join(paths.messages() if messages is None else messages, words, progress)
    if path is None:
        path = paths.join(paths.messages(log_space=True), words, progress)
    assert path is not None
    return path


def filtered_messages(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> FilteredMessages:
    """Distribution of the state before every chunk given the rows before it, for `sampled_path`."""
    return _Paths(model, params, sequences, drawn=True).messages()


class Told(NamedTuple):
    """What a backend is told of the chunks of a block, see `Backend.paths`."""

    log_space: bool
    forward: Any = None
    following: Any = None
    key: Any = NO_KEY


class PathAsked(NamedTuple):
    """One block: which, what is wanted, what is told of its chunks, by how many rows they start early, and whether
    transfer operators are asked for instead."""

    block: int
    wanted: PathsWanted
    told: Told
    overlap: int = 0
    operators: bool = False


class PathBlock(NamedTuple):
    """Of one block: paths through its chunks, their largest disagreement, and the log step `(K, K)` into the first."""

    paths: ChunkPaths
    gap: float
    step: np.ndarray


class PathBlocks(Blocks):
    """Blocks through whose chunks paths are found."""

    least_overlap = 1  # a path is followed from the row behind a chunk

    def gives_rows(self, asked: PathAsked) -> bool:
        return asked.wanted.states > 0

    def run(self, asked: PathAsked) -> Any:  # type: ignore[override]
        """A `PathBlock`, with states of the block's own rows; or transfer operators `(W, K, K)`."""
        with jax.enable_x64(True):
            placed = self._placed(Asked(asked.block, max(asked.overlap, self.least_overlap)))
            fixed = any(placed.layout.spans)
            layout = placed.layout.trimmed(asked.overlap, 1, (asked.overlap, self.how.chunk, 1) if fixed else (0, 0, 0))
            wanted = asked.wanted._replace(states=placed.size if asked.wanted.states else 0)
            found = _find(
                self.model if placed.rows is not None else None, self.backend, wanted, asked.operators, self.params,
                placed.lowered, placed.rows, layout, self.joined(asked.block), asked.told, np.int64(placed.origin),
            )  # fmt: skip
            found = jax.tree.map(np.asarray, found)
        if asked.operators:
            return found
        paths, gap, step, undefined = found
        self._refuse_undefined(int(undefined), placed.origin)
        start, stop = self.bounds(asked.block)
        states = paths.states[start - placed.origin : stop - placed.origin] if wanted.states else None
        return PathBlock(paths._replace(states=states), float(gap), step)


@partial(jax.jit, static_argnames=("backend", "wanted", "operators"))
def _find(
    model: HMM | None,
    backend: Backend,
    wanted: PathsWanted,
    operators: bool,
    params: Mapping[str, jax.Array],
    lowered: Lowered | None,
    rows: Rows | None,
    layout: Layout,
    joined: Any,
    told: Told,
    origin: Any,
) -> Any:
    """Paths, the disagreement of chunks, the step into the first, and a row without a density or -1; or operators."""
    potentials, undefined = block_potentials(model, params, lowered, rows)
    run = chunk_run(backend, potentials, params["initial"], Uniforms(told.key, origin))
    if operators:
        return path_operators(run, layout, params["initial"].shape[-1], drawn=wanted.drawn)
    found, steps = run(layout, told.forward, told.following, told.log_space, wanted)
    gap = jnp.zeros(())
    if wanted.messages:
        gap = inner_forward_gap(steps, found.forward_out, found.forward_in, joined, best=not wanted.drawn)
    return found, gap, steps[0], undefined


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
        wanted, told = PathsWanted(self.drawn, messages=True), Told(log_space)
        found: list[np.ndarray] = []
        last = np.zeros(self.model.n_states)
        for overlap in OVERLAPS:
            for block in self._run(PathAsked(i, wanted, told, overlap) for i in self._from(len(found))):
                if not self._agree(len(found), last, block):
                    break
                last = block.paths.forward_out[len(self.blocks.chunks(len(found))) - 1]
                found.append(block.paths.forward_in)
            if len(found) == self.blocks.n_blocks:
                return FilteredMessages(found, log_space)
            if overlap >= np.diff(self.sequences.offsets).max():
                break
        if not log_space:  # what plain numbers have lost shows as disagreement too
            return self.messages(log_space=True)
        for operators in self._run(PathAsked(i, wanted, told, operators=True) for i in self._from(len(found))):
            with jax.enable_x64(True):
                propagated = propagate_forward(jnp.asarray(last), jnp.asarray(operators), best=not self.drawn)
            before, last = map(np.asarray, propagated)
            found.append(before)
        return FilteredMessages(found, log_space)

    def join(self, messages: FilteredMessages, key: np.ndarray, progress: Progress | None) -> np.ndarray | None:
        """The path, from the messages before every chunk; None where these have to be found in log space."""
        before, log_space = messages
        wanted, backwards = PathsWanted(self.drawn, messages=True, maps=True), self._from(0)[::-1]
        asked = (PathAsked(i, wanted, Told(log_space, before[i], None, key)) for i in backwards)
        following: dict[int, np.ndarray] = {}
        state, onward = -1, False  # of the chunk to the right: its first state, and whether it goes on from this one
        for index, block in zip(backwards, self._run(asked), strict=True):
            joined = self.blocks.joined(index)
            after = following[index] = np.full(len(joined), -1, np.int32)
            for chunk in range(len(self.blocks.chunks(index)) - 1, -1, -1):
                after[chunk] = state if onward else -1
                state, onward = int(block.paths.maps[chunk, after[chunk]]), joined[chunk]
                if not log_space and (state == NO_STATE or block.paths.redone):
                    return None
        path = np.empty(self.sequences.length, np.int8 if self.model.n_states <= 127 else np.int16)
        wanted = PathsWanted(self.drawn, states=1)
        asked = (PathAsked(i, wanted, Told(log_space, before[i], following[i], key)) for i in self._from(0))
        for index, block in enumerate(self._run(asked)):
            if not log_space and block.paths.redone:
                return None
            start, stop = self.blocks.bounds(index)
            path[start:stop] = block.paths.states
            if progress is not None:
                progress(stop - start)
        return path

    def _from(self, begin: int) -> range:
        return range(begin, self.blocks.n_blocks)

    def _run(self, asked: Iterable[PathAsked]) -> Iterator[Any]:
        for block in self.blocks.each(asked):
            if isinstance(block, PathBlock) and np.any(np.all(np.isneginf(block.paths.forward_out), axis=1)):
                self._refuse()
            yield block

    def _agree(self, index: int, last: np.ndarray, block: PathBlock) -> bool:
        """Whether the chunks of a block agree with one another and with the last one of the block before."""
        gap, best = block.gap, not self.drawn
        if self.blocks.joined(index)[0]:
            with jax.enable_x64(True):
                step, out, into = map(jnp.asarray, (block.step, last[None], block.paths.forward_in[:1]))
                between = forward_gap(step, out, into, best)
            gap = max(gap, float(between[0]))
        return gap <= (SCORE_TOLERANCE if best else TOLERANCE)

    def _refuse(self) -> NoReturn:
        for _ in self.stream.outcomes():  # raises, and names the row
            pass
        raise ImpossibleObservationError(
            f"No path of states has a positive probability for {self.sequences.name}: mark impossible observations as "
            "missing (NaN), or use an emission or transitions that allow them."
        )
