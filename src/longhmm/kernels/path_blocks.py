"""What finding a path does with one block of rows, near the data: scores, maps from chunk to chunk, and states.

Each kind of work is a function that gets ready for many blocks (see `data.executor`); `path_pass` joins the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.kernels.blocks import Block, Plan
from longhmm.kernels.densities import as_arrays, read_block
from longhmm.kernels.edges import carried_before, chunk_log_likelihoods, guessed_before
from longhmm.messages.forward import filter_messages
from longhmm.messages.path_sampling import sample_paths
from longhmm.messages.viterbi import first_scores, trace_back, viterbi_messages, viterbi_scores
from longhmm.model.hmm import HMM


class _Laws(NamedTuple):
    initial: jax.Array
    transition: jax.Array


class Walk(NamedTuple):
    """How a path is found: `forward` prepares a block once, `back` walks it for any states that follow its chunks.

    `forward(laws, block, log_likelihoods, log_before, key)` returns any tree; `back(laws, tree, following)` the
    states `(time, W)`, where `following` `(W,)` is -1 for a chunk that ends its sequence.
    """

    forward: Callable[[_Laws, Block, jax.Array, jax.Array, jax.Array], Any]
    back: Callable[[_Laws, Any, jax.Array], jax.Array]


class How(NamedTuple):
    """What is constant in a pass: checked parameters, and the shape of the plan."""

    params: dict[str, np.ndarray]
    shape: tuple[int, int]


class Scores(NamedTuple):
    """Viterbi scores `(K, W)` before every chunk of a block, and those at its end (None where edges were carried)."""

    before: np.ndarray
    leaving: np.ndarray | None


class _Ready:
    """What every kind of work needs."""

    def __init__(self, how: How, model: HMM, sequences: Sequences) -> None:
        self.model, self.plan = model, Plan(sequences, model.n_states, how.shape)
        self.arrays: Mapping[str, jax.Array] = as_arrays(how.params)
        self.laws = _Laws(self.arrays["initial"], self.arrays["transition"])

    def read(self, index: int, reach: int) -> tuple[Block, jax.Array]:
        return read_block(self.model, self.arrays, self.plan, index, reach)


def score_blocks(how: How, model: HMM, sequences: Sequences) -> Callable[[tuple[int, int]], Scores]:
    """Scores of a block by its index, guessed from so many rows before each chunk."""
    ready = _Ready(how, model, sequences)

    def score_block(asked: tuple[int, int]) -> Scores:
        block, logs = ready.read(*asked)
        with jax.enable_x64(True):
            return Scores(*map(np.asarray, _score_block(ready.laws, logs, block.tables())))

    return score_block


def carry_blocks(
    how: How, model: HMM, sequences: Sequences
) -> Callable[[tuple[int, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Scores before every chunk of a block, and those behind it, from the ones that come into it."""
    ready = _Ready(how, model, sequences)

    def carry_block(asked: tuple[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        index, carry = asked
        block, logs = ready.read(index, 0)
        with jax.enable_x64(True):
            before, carried = _carry_scores(ready.laws, logs, block.tables(), carry)
        return np.asarray(before), np.asarray(carried)

    return carry_block


def map_blocks(
    how: How, walk: Walk, key: np.ndarray, model: HMM, sequences: Sequences
) -> Callable[[tuple[int, np.ndarray]], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """By index and what comes before every chunk: first states (see `_first_states`), lengths, and which end one."""
    ready = _Ready(how, model, sequences)

    def map_block(asked: tuple[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        index, before = asked
        block, logs = ready.read(index, 0)
        with jax.enable_x64(True):
            own = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(key)), index)
            maps = _first_states(walk, ready.laws, logs, block.tables(), before, own)
        return np.asarray(maps), block.length, block.at_end

    return map_block


def fill_blocks(
    how: How, walk: Walk, key: np.ndarray, model: HMM, sequences: Sequences
) -> Callable[[tuple[int, np.ndarray, np.ndarray]], np.ndarray]:
    """States of the rows of a block, by its index, what comes before every chunk, and the state that follows each."""
    ready = _Ready(how, model, sequences)
    small = np.int8 if model.n_states <= 127 else np.int16

    def fill_block(asked: tuple[int, np.ndarray, np.ndarray]) -> np.ndarray:
        index, before, following = asked
        block, logs = ready.read(index, 0)
        with jax.enable_x64(True):
            own = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(key)), index)
            states = np.asarray(_fill(walk, ready.laws, logs, block.tables(), before, following, own))
        inside = block.rows < len(block.values)
        start, stop = ready.plan.bounds(index)
        path = np.empty(stop - start, small)
        path[block.rows[inside]] = states[inside]
        return path

    return fill_block


def _score(
    laws: _Laws, block: Block, chunks: jax.Array, log_before: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    first = first_scores(log_before, block.at_start, laws.initial, laws.transition)
    return viterbi_scores(first, laws.transition, chunks, block.length)


def _trace(laws: _Laws, scored: tuple[jax.Array, jax.Array, jax.Array], following: jax.Array) -> jax.Array:
    scores, shift, origins = scored
    onward = origins[-1].astype(jnp.int32)[jnp.maximum(following, 0), jnp.arange(following.shape[0])]
    last = jnp.where(following >= 0, onward, jnp.argmax(scores, axis=0).astype(jnp.int32))
    # Minus one marks chunks that no path can pass.
    return jnp.where(jnp.isneginf(shift)[None, :], -1, trace_back(origins, last))


def _filter(
    laws: _Laws, block: Block, chunks: jax.Array, log_before: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    filtered = filter_messages(log_before, block.at_start, laws.initial, laws.transition, chunks)
    return filtered.log_alpha, jax.random.uniform(key, (chunks.shape[0], chunks.shape[2]), chunks.dtype)


def _draw(laws: _Laws, prepared: tuple[jax.Array, jax.Array], following: jax.Array) -> jax.Array:
    log_alpha, uniforms = prepared
    return sample_paths(log_alpha, laws.transition, uniforms, following)


BEST, DRAWN = Walk(_score, _trace), Walk(_filter, _draw)


@jax.jit
def _score_block(laws: _Laws, logs: jax.Array, block: Block) -> tuple[jax.Array, jax.Array]:
    before = guessed_before(viterbi_messages, *laws, logs, block)
    chunks = chunk_log_likelihoods(logs, block.rows)
    return before, viterbi_messages(before, block.at_start, *laws, chunks)[-1]


@jax.jit
def _carry_scores(laws: _Laws, logs: jax.Array, block: Block, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
    return carried_before(viterbi_messages, carry, *laws, logs, block)


@partial(jax.jit, static_argnames=("walk",))
def _first_states(
    walk: Walk, laws: _Laws, logs: jax.Array, block: Block, before: jax.Array, key: jax.Array
) -> jax.Array:
    """First state of every chunk for each state that may follow it, `(K + 1, W)`; the last row: nothing follows."""
    prepared = walk.forward(laws, block, chunk_log_likelihoods(logs, block.rows), jnp.asarray(before), key)

    def one(following: jax.Array) -> jax.Array:
        return walk.back(laws, prepared, jnp.full(block.length.shape, following))[0]

    # One at a time: K paths at once would multiply the memory of a block by K.
    return jax.lax.map(one, jnp.concatenate([jnp.arange(logs.shape[1]), jnp.full(1, -1)]).astype(jnp.int32))


@partial(jax.jit, static_argnames=("walk",))
def _fill(
    walk: Walk,
    laws: _Laws,
    logs: jax.Array,
    block: Block,
    before: jax.Array,
    following: jax.Array,
    key: jax.Array,
) -> jax.Array:
    prepared = walk.forward(laws, block, chunk_log_likelihoods(logs, block.rows), jnp.asarray(before), key)
    return walk.back(laws, prepared, jnp.asarray(following))
