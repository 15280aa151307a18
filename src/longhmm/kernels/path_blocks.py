"""What finding a path does with one block of rows, near the data: messages, maps from chunk to chunk, and states.

Each kind of work is a function that gets ready for many blocks (see `data.executor`); `path_pass` joins the results.
The C++ kernel does it where it can (see `fused_paths`), JAX elsewhere, with the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.kernels.blocks import Block, Plan
from longhmm.kernels.densities import as_arrays, read_block
from longhmm.kernels.edges import chunk_log_likelihoods, guessed_before, log_filtered
from longhmm.kernels.fused_paths import FusedPaths, serves
from longhmm.messages.forward import Filtered, filter_messages
from longhmm.messages.path_sampling import sample_paths
from longhmm.messages.viterbi import first_scores, trace_back, viterbi_messages, viterbi_scores
from longhmm.model.hmm import HMM


class Laws(NamedTuple):
    """Law of first states `(K,)`, and of steps `(K, K)`."""

    initial: jax.Array
    transition: jax.Array


class Spans(Protocol):
    """How chunks lie in their sequences, `(W,)` each: whether one begins its sequence, and how many times it has."""

    @property
    def at_start(self) -> Any: ...
    @property
    def length(self) -> Any: ...


class Walk(NamedTuple):
    """How a path is found: `forward` prepares a block once, `back` walks it for any states that follow its chunks.

    `messages(laws, log_likelihoods, block)` returns the log messages before every chunk, guessed, and at its end, minus
    infinity where no state is possible. `forward(laws, spans, log_likelihoods, log_before, uniforms)` returns any tree;
    `back(laws, tree, following)` the states `(time, W)`, where `following` `(W,)` is -1 for a chunk that ends its
    sequence.
    """

    drawn: bool
    messages: Callable[[Laws, jax.Array, Block], tuple[jax.Array, jax.Array]]
    forward: Callable[[Laws, Spans, jax.Array, jax.Array, jax.Array], Any]
    back: Callable[[Laws, Any, jax.Array], jax.Array]


class How(NamedTuple):
    """What is constant in a pass: checked parameters, the shape of the plan, and whether the C++ kernel draws on
    logarithms throughout."""

    params: dict[str, np.ndarray]
    shape: tuple[int, int]
    logarithms: bool = False


class Scores(NamedTuple):
    """Log messages `(K, W)` before every chunk of a block (scores for the best path, laws for a drawn one), and those
    at its end (None where edges were carried)."""

    before: np.ndarray
    leaving: np.ndarray | None


class Maps(NamedTuple):
    """First states (see `first_states`), lengths of chunks, which of them end a sequence, and whether plain numbers
    underflowed, so that the messages may be wrong."""

    first: np.ndarray
    length: np.ndarray
    at_end: np.ndarray
    lost: bool


class _Ready:
    """What every kind of work needs."""

    def __init__(self, how: How, walk: Walk, key: np.ndarray | None, model: HMM, sequences: Sequences) -> None:
        self.model, self.plan = model, Plan(sequences, model.n_states, how.shape)
        self.fused: FusedPaths | None = None
        if serves(model):
            self.fused = FusedPaths(model, how.params, self.plan, drawn=walk.drawn, logarithms=how.logarithms, key=key)
        self.arrays: Mapping[str, jax.Array] = as_arrays(how.params)
        self.laws = Laws(self.arrays["initial"], self.arrays["transition"])

    def read(self, index: int, reach: int) -> tuple[Block, jax.Array]:
        return read_block(self.model, self.arrays, self.plan, index, reach)

    def uniforms(self, key: np.ndarray, block: Block, index: int) -> jax.Array:
        """`(time, W)`, the random number of every row."""
        return row_uniforms(jnp.asarray(key), self.plan.bounds(index)[0] + block.rows.astype(np.int64))


def message_blocks(how: How, walk: Walk, model: HMM, sequences: Sequences) -> Callable[[tuple[int, int]], Scores]:
    """Messages of a block by its index, guessed from so many rows before each chunk."""
    ready = _Ready(how, walk, None, model, sequences)

    def message_block(asked: tuple[int, int]) -> Scores:
        if ready.fused is not None:
            return Scores(*ready.fused.messages(*asked))
        block, logs = ready.read(*asked)
        with jax.enable_x64(True):
            return Scores(*map(np.asarray, _messages(walk, ready.laws, logs, block.tables())))

    return message_block


def map_blocks(
    how: How, walk: Walk, key: np.ndarray, model: HMM, sequences: Sequences
) -> Callable[[tuple[int, np.ndarray]], Maps]:
    """Maps of a block, by its index and what comes before every chunk."""
    ready = _Ready(how, walk, key, model, sequences)

    def map_block(asked: tuple[int, np.ndarray]) -> Maps:
        index, before = asked
        if ready.fused is not None:
            first, lost = ready.fused.maps(index, before)
            return Maps(first, *ready.plan.spans(index), lost)
        block, logs = ready.read(index, 0)
        with jax.enable_x64(True):
            uniforms = ready.uniforms(key, block, index)
            maps = _first_states(walk, ready.laws, logs, block.tables(), before, uniforms)
        return Maps(np.asarray(maps), block.length, block.at_end, False)

    return map_block


def fill_blocks(
    how: How, walk: Walk, key: np.ndarray, model: HMM, sequences: Sequences
) -> Callable[[tuple[int, np.ndarray, np.ndarray]], np.ndarray]:
    """States of the rows of a block, by its index, what comes before every chunk, and the state that follows each."""
    ready = _Ready(how, walk, key, model, sequences)
    small = np.int8 if model.n_states <= 127 else np.int16

    def fill_block(asked: tuple[int, np.ndarray, np.ndarray]) -> np.ndarray:
        index, before, following = asked
        if ready.fused is not None:
            return ready.fused.fill(index, before, following)
        block, logs = ready.read(index, 0)
        with jax.enable_x64(True):
            uniforms = ready.uniforms(key, block, index)
            states = np.asarray(_fill(walk, ready.laws, logs, block.tables(), before, following, uniforms))
        inside = block.rows < len(block.values)
        start, stop = ready.plan.bounds(index)
        path = np.empty(stop - start, small)
        path[block.rows[inside]] = states[inside]
        return path

    return fill_block


def _score(
    laws: Laws, spans: Spans, chunks: jax.Array, log_before: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    first = first_scores(log_before, spans.at_start, laws.initial, laws.transition)
    return viterbi_scores(first, laws.transition, chunks, spans.length)


def _trace(laws: Laws, scored: tuple[jax.Array, jax.Array, jax.Array], following: jax.Array) -> jax.Array:
    scores, shift, origins = scored
    onward = origins[-1].astype(jnp.int32)[jnp.maximum(following, 0), jnp.arange(following.shape[0])]
    last = jnp.where(following >= 0, onward, jnp.argmax(scores, axis=0).astype(jnp.int32))
    # Minus one marks chunks that no path can pass.
    return jnp.where(jnp.isneginf(shift)[None, :], -1, trace_back(origins, last))


def _filter(
    laws: Laws, spans: Spans, chunks: jax.Array, log_before: jax.Array, uniforms: jax.Array
) -> tuple[Filtered, jax.Array, jax.Array]:
    filtered = filter_messages(log_before, spans.at_start, laws.initial, laws.transition, chunks)
    return filtered, uniforms, spans.length


def _draw(laws: Laws, prepared: tuple[Filtered, jax.Array, jax.Array], following: jax.Array) -> jax.Array:
    filtered, uniforms, length = prepared
    return sample_paths(filtered.log_alpha, laws.transition, uniforms, following, length)


def _best_messages(laws: Laws, logs: jax.Array, block: Block) -> tuple[jax.Array, jax.Array]:
    before = guessed_before(viterbi_messages, *laws, logs, block)
    chunks = chunk_log_likelihoods(logs, block.rows)
    return before, viterbi_messages(before, block.at_start, *laws, chunks)[0][-1]


def _filtered_messages(laws: Laws, logs: jax.Array, block: Block) -> tuple[jax.Array, jax.Array]:
    before = guessed_before(log_filtered, *laws, logs, block)
    filtered = filter_messages(before, block.at_start, *laws, chunk_log_likelihoods(logs, block.rows))
    return before, jnp.where(filtered.impossible_at >= 0, -jnp.inf, filtered.log_alpha[-1])


BEST = Walk(False, _best_messages, _score, _trace)
DRAWN = Walk(True, _filtered_messages, _filter, _draw)


@jax.jit
def row_uniforms(key: jax.Array, rows: jax.Array) -> jax.Array:
    """Uniforms on [0, 1) that depend on a key and on the number of a row alone; the C++ kernel has the same."""
    from jax.extend.random import threefry_2x32

    counts = rows.ravel().astype(jnp.uint64)
    words = jnp.concatenate([counts >> 32, counts & 0xFFFFFFFF]).astype(jnp.uint32)
    high, low = jnp.split(threefry_2x32(key, words).astype(jnp.uint64), 2)
    return ((((high << 32) | low) >> 11).astype(jnp.float64) * 2.0**-53).reshape(rows.shape)


@partial(jax.jit, static_argnames=("walk",))
def _messages(walk: Walk, laws: Laws, logs: jax.Array, block: Block) -> tuple[jax.Array, jax.Array]:
    return walk.messages(laws, logs, block)


@partial(jax.jit, static_argnames=("walk",))
def _first_states(
    walk: Walk, laws: Laws, logs: jax.Array, block: Block, before: jax.Array, uniforms: jax.Array
) -> jax.Array:
    prepared = walk.forward(laws, block, chunk_log_likelihoods(logs, block.rows), jnp.asarray(before), uniforms)
    return first_states(walk, laws, prepared, block.length.shape)


def first_states(walk: Walk, laws: Laws, prepared: Any, shape: tuple[int, ...]) -> jax.Array:
    """First state of every chunk for each state that may follow it, `(K + 1, W)`; the last row: nothing follows."""

    def one(following: jax.Array) -> jax.Array:
        return walk.back(laws, prepared, jnp.full(shape, following))[0]

    # One at a time: K paths at once would multiply the memory of a block by K.
    followers = jnp.concatenate([jnp.arange(laws.initial.shape[0]), jnp.full(1, -1)])
    return jax.lax.map(one, followers.astype(jnp.int32))


@partial(jax.jit, static_argnames=("walk",))
def _fill(
    walk: Walk,
    laws: Laws,
    logs: jax.Array,
    block: Block,
    before: jax.Array,
    following: jax.Array,
    uniforms: jax.Array,
) -> jax.Array:
    prepared = walk.forward(laws, block, chunk_log_likelihoods(logs, block.rows), jnp.asarray(before), uniforms)
    return walk.back(laws, prepared, jnp.asarray(following))
