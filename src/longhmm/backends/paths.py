"""Whole paths of states: the most probable one, or draws from their posterior (F7).

A path is fixed from the end backwards, so it takes two sweeps (see `ChunkPaths`), after one that makes the messages
before all chunks exact. From the host, over data of any length, memory holds a few numbers per chunk, and the path; or
all is done inside one program (`draw_path`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.block import Asked, Blocks, How
from longhmm.backends.evaluate import Params
from longhmm.backends.protocol import NO_KEY, NO_STATE, Boundary, ChunkPaths, PathsGiven, PathsWanted, Potentials
from longhmm.backends.resident import Data, Program, by_blocks, defined, propagated
from longhmm.backends.stitch import OVERLAPS, TOLERANCE, find_paths, inner_gap
from longhmm.backends.stream import Stream
from longhmm.data.layout import Layout
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold


def best_path(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> np.ndarray:
    """The most probable path of states (Viterbi), `(T,)`, exact for every sequence."""
    blocks = _blocks(model, params, sequences)
    return _join(blocks, False, _messages(blocks, False), NO_KEY)


def sampled_paths(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, keys: Iterable[jax.Array]
) -> Iterator[np.ndarray]:
    """For each key a path of states drawn from `P(x | all y)`, `(T,)`; all share their messages."""
    blocks = _blocks(model, params, sequences)
    messages = _messages(blocks, True)
    for key in keys:
        yield _join(blocks, True, messages, np.asarray(jax.random.key_data(key)).ravel()[:2])


def _blocks(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> Blocks:
    memory, model, complete = unfold(model, model.validate(params))
    blocks = Blocks(How(complete, forward_only=True), model, sequences)
    blocks.memory = memory
    return blocks


def _messages(blocks: Blocks, drawn: bool) -> list[np.ndarray]:
    """Messages before every chunk of each block (scores, for the best path), exact."""
    run = Stream(blocks, Asked(paths=PathsWanted(drawn, messages=True)))
    return [outcome.found.forward_in for outcome in run.outcomes()]


def _join(blocks: Blocks, drawn: bool, messages: list[np.ndarray], key: np.ndarray) -> np.ndarray:
    """The path, from the messages before every chunk."""
    asked = [Asked(index, boundary=Boundary(before), key=key) for index, before in enumerate(messages)]
    following = _following(blocks, drawn, asked)
    path = np.empty(blocks.sequences.length, np.int8 if blocks.model.n_states <= 127 else np.int16)
    states = PathsWanted(drawn, states=1)
    filled = blocks.each(each._replace(paths=states, following=following[each.block]) for each in asked)
    for index, outcome in enumerate(filled):
        start, stop = blocks.bounds(index)
        path[start:stop] = outcome.found.states
    return blocks.memory.path(path)


def _following(blocks: Blocks, drawn: bool, asked: list[Asked]) -> dict[int, np.ndarray]:
    """States of the rows behind all chunks of each block, -1 where a sequence ends."""
    maps = PathsWanted(drawn, messages=True, maps=True)
    found = blocks.each(each._replace(paths=maps) for each in reversed(asked))
    following: dict[int, np.ndarray] = {}
    state, onward = -1, False  # of the chunk to the right: its first state, and whether it goes on from this one
    for index, outcome in zip(reversed(range(blocks.n_blocks)), found, strict=True):
        joined = blocks.joined(index)
        after = following[index] = np.full(len(joined), -1, np.int32)
        for chunk in range(len(blocks.chunks(index)) - 1, -1, -1):
            after[chunk] = state if onward else -1
            state, onward = int(outcome.found.maps[chunk, after[chunk]]), joined[chunk]
            if state == NO_STATE and not asked[0].log_space and blocks.backend.underflows:
                return _following(blocks, drawn, [each._replace(log_space=True) for each in asked])
    return following


# Runs chunks once; returns, beside paths, the steps between chunks.
Run = Callable[[Layout, PathsGiven, PathsWanted], tuple[ChunkPaths, jax.Array]]


class DrawnPath(NamedTuple):
    """One path through all data, with its counts."""

    states: jax.Array  # `(T,)`, the state at every row
    first: jax.Array  # `(K,)`, number of sequences that begin in each state
    transitions: jax.Array  # `(K, K)`, number of steps from i to j
    log_likelihood: jax.Array  # `log p(y)`, the states summed out


def draw_path(program: Program, data: Data, params: Params, key: jax.Array) -> DrawnPath:
    """A draw from `P(x | all y)`, under `jax.enable_x64(True)`; where an emission has no lowering, block by block."""
    spans = (0, 0, 0) if program.backend.in_place else (program.overlaps[-1], program.chunk, 1)
    layout, words = replace(data.layout, spans=spans), jax.random.key_data(key).ravel()[:2]
    small = jnp.uint8 if program.model.n_states <= NO_STATE else jnp.int32

    def run(layout: Layout, given: PathsGiven, wanted: PathsWanted) -> Any:
        room = program.length if data.numbers is not None else program.block_rows
        wanted = wanted._replace(states=room if wanted.states else 0)

        def one(potentials: Potentials, _: Any, origin: Any, chunks: Layout, forward: Any, following: Any) -> Any:
            own = PathsGiven(forward, following, given.log_space, words, origin)
            found, steps = find_paths(program.backend, potentials, chunks, own, wanted)
            likelihood = defined(data, potentials, found.log_likelihood)
            return found._replace(log_likelihood=likelihood), steps, origin

        found, steps, origins = by_blocks(program, data, params, one, layout, given.forward, given.following)

        def fill(states: jax.Array, block: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            origin, own = block  # 0 in rows that belong to other blocks
            here = jax.lax.dynamic_slice_in_dim(states, origin, room) + own
            return jax.lax.dynamic_update_slice_in_dim(states, here, origin, 0), None

        states = found.states[0]
        if data.numbers is None and wanted.states:
            states, _ = jax.lax.scan(fill, jnp.zeros(program.length, small), (origins, found.states))
        rest = (found._replace(states=None), steps)
        paths, steps = jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), rest)
        return paths._replace(states=states), steps

    exact, underflows = partial(propagated, program, data, params), program.backend.underflows
    drawn = draw_chunks(run, lambda: exact().forward, layout, program.model.n_states, program.length, underflows)
    return drawn._replace(log_likelihood=drawn.log_likelihood + data.log_base_measure)


def draw_chunks(
    run: Run, exact: Callable[[], jax.Array], layout: Layout, n_states: int, n_rows: int, underflows: bool
) -> DrawnPath:
    """A path through chunks whose cores are all rows, in order; `exact` finds the messages before them by operators.
    `left` holds the rows of the same sequence before each, as many as may be of use; `spans` zeros, or the longest
    left, the longest core and 1."""
    lead, longest, behind = layout.spans
    overlaps = (lead,) if longest else OVERLAPS
    joined, own = layout.left > 0, layout.trimmed(0, 1, (0, longest, behind))

    def longer(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        chunks = layout.trimmed(jnp.asarray(overlaps, jnp.int32)[carry[0]], 1, layout.spans)
        found, steps = run(chunks, PathsGiven(), PathsWanted(True, messages=True))
        return carry[0] + 1, found.forward_in, inner_gap(lambda: steps, joined, found[:2])

    def disagree(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return (carry[0] < len(overlaps)) & ~(carry[2] <= TOLERANCE)

    def follow(state: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        firsts, onward = chunk
        following = jnp.where(onward, state, -1)
        return firsts[following].astype(jnp.int32), following

    def followed(log_space: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
        """States behind all chunks, whether all of them are known, and the log likelihood."""
        found, _ = run(own, PathsGiven(before, log_space=log_space), PathsWanted(True, messages=True, maps=True))
        maps = (found.maps, jnp.append(joined[1:], False))
        _, following = jax.lax.scan(follow, jnp.asarray(-1, jnp.int32), maps, reverse=True)
        return following, log_space | ~jnp.any(following == NO_STATE), jnp.sum(found.log_likelihood)

    nothing = (jnp.zeros((), jnp.int32), jnp.zeros((layout.size, n_states)), jnp.asarray(jnp.inf))
    _, before, gap = jax.lax.while_loop(disagree, longer, nothing)
    # Loops of one turn at most: unlike conditions, they cost nothing where chains share a program and none needs them.
    before, _ = jax.lax.while_loop(
        lambda carry: ~(carry[1] <= TOLERANCE), lambda _: (exact(), jnp.zeros(())), (before, gap)
    )
    found = followed(False)
    if underflows:  # in log space, all are
        found = jax.lax.while_loop(lambda carry: ~carry[1], lambda _: followed(True), found)
    following, _, log_likelihood = found
    filled, _ = run(own, PathsGiven(before, following), PathsWanted(True, states=n_rows))
    return DrawnPath(filled.states, *_counts(filled.states, layout, n_states), log_likelihood)


def _counts(states: jax.Array, layout: Layout, n_states: int) -> tuple[jax.Array, jax.Array]:
    """First states of sequences, and steps inside them."""
    n_rows, begins = states.shape[0], (layout.left == 0) & (layout.core > 0)
    starts = jnp.zeros(n_rows, bool).at[jnp.where(begins, layout.begin, n_rows)].set(True, mode="drop")
    inside = jnp.arange(1, n_rows) < jnp.sum(layout.core)
    steps = jnp.where(~starts[1:] & inside, states[:-1].astype(jnp.int32) * n_states + states[1:], n_states**2)
    opened = jnp.where(begins, states[layout.begin], n_states)
    first, moves = jnp.bincount(opened, length=n_states + 1), jnp.bincount(steps, length=n_states**2 + 1)
    return first[:-1].astype(float), moves[:-1].reshape(n_states, n_states).astype(float)
