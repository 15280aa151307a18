"""Whole paths of states over data of any length: the most probable one, or draws from their posterior.

A path is fixed from the end backwards, so it takes two sweeps. The first finds, for every chunk, the map from the
state that follows the chunk to the chunk's first state. Following these maps from the end of each sequence fixes the
state after every chunk, and the second sweep fills the chunks in. Memory holds a few numbers per chunk and the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels.blocks import Block, Plan
from longhmm.kernels.edges import (
    at_last_time,
    carried_before,
    chunk_log_likelihoods,
    guessed_before,
    pair,
    proved_blocks,
)
from longhmm.kernels.full_pass import Progress, filter_pass
from longhmm.messages.forward import filter_messages
from longhmm.messages.path_sampling import sample_paths
from longhmm.messages.viterbi import first_scores, trace_back, viterbi_messages, viterbi_scores
from longhmm.model.hmm import HMM

SCORE_TOLERANCE = 1e-8  # scores are sums of thousands of log probabilities in double precision


class Walk(NamedTuple):
    """How a path is found: `forward` prepares a block once, `back` walks it for any states that follow its chunks.

    `forward(params, block, log_likelihoods, log_before, key)` returns any tree; `back(params, tree, following)` the
    states `(time, W)`, where `following` `(W,)` is -1 for a chunk that ends its sequence.
    """

    forward: Callable[[Mapping[str, jax.Array], Block, jax.Array, jax.Array, jax.Array], Any]
    back: Callable[[Mapping[str, jax.Array], Any, jax.Array], jax.Array]


class _Scores(NamedTuple):
    before: np.ndarray
    leaving: np.ndarray


def best_path(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, progress: Progress | None = None
) -> np.ndarray:
    """The most probable path of states (Viterbi), `(T,)`, exact for every sequence."""
    model.check_dim(sequences)
    plan = Plan(sequences, model.n_states)
    arrays = _arrays(model.validate(params))

    def run(index: int, reach: int) -> _Scores:
        block = plan.read(index, reach)
        model.check_rows(sequences, block.values, block.observed, plan.position(index, reach, 0))
        with jax.enable_x64(True):
            before, leaving = _score_block(model, arrays, block)
            return _Scores(np.asarray(before), np.asarray(leaving))

    def agree(index: int, previous: _Scores | None, scores: _Scores) -> bool:
        leaving, started = pair(plan.joints(index), previous, scores, "leaving", "before")
        with np.errstate(invalid="ignore"):
            return bool(np.all((leaving == started) | (np.abs(leaving - started) <= SCORE_TOLERANCE)))

    def carried(begin: int) -> Iterator[tuple[int, int, _Scores]]:
        with jax.enable_x64(True):
            carry = jnp.zeros(model.n_states)
            for index in range(plan.n_blocks):
                before, carry = _carry_scores(model, arrays, plan.read(index, 0), carry)
                if index >= begin:
                    yield index, 0, _Scores(np.asarray(before), np.zeros((0, 0)))

    before = {index: scores.before for index, _, scores in proved_blocks(plan, run, agree, carried)}
    return _join(model, arrays, sequences, plan, before, BEST, jax.random.key(0), progress)


def sampled_path(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, key: jax.Array, progress: Progress | None = None
) -> np.ndarray:
    """One path of states drawn from `P(x | all y)`, `(T,)`."""
    plan = Plan(sequences, model.n_states)
    laws = [result.before for result in filter_pass(model, params, sequences)]
    arrays = _arrays(model.validate(params))
    return _join(model, arrays, sequences, plan, dict(enumerate(laws)), DRAWN, key, progress)


def _join(
    model: HMM,
    params: Mapping[str, jax.Array],
    sequences: Sequences,
    plan: Plan,
    before: dict[int, np.ndarray],
    walk: Walk,
    key: jax.Array,
    progress: Progress | None,
) -> np.ndarray:
    small = np.int8 if model.n_states <= 127 else np.int16
    following: dict[int, np.ndarray] = {}
    state = -1  # the first state of the chunk to the right
    for index in reversed(range(plan.n_blocks)):
        block = plan.read(index, 0)
        with jax.enable_x64(True):
            maps = np.asarray(_first_states(model, walk, params, block, before[index], jax.random.fold_in(key, index)))
        after = np.full(plan.lanes, -1, np.int32)
        for lane in reversed(np.flatnonzero(block.length)):
            after[lane] = -1 if block.at_end[lane] else state
            state = int(maps[after[lane], lane])
        following[index] = after
    path = np.empty(sequences.length, small)
    for index in range(plan.n_blocks):
        block = plan.read(index, 0)
        start, stop = plan.bounds(index)
        with jax.enable_x64(True):
            chunk_key = jax.random.fold_in(key, index)
            states = np.asarray(_fill(model, walk, params, block, before[index], following[index], chunk_key))
        inside = block.rows < len(block.values)
        path[start + block.rows[inside]] = states[inside]
        if progress is not None:
            progress(stop - start)
    if (path < 0).any():
        position = int(np.argmax(path < 0))
        raise ImpossibleObservationError(
            f"No path of states can have produced the data around {sequences.describe(position)}: mark the impossible "
            "observation as missing (NaN), or use an emission or transitions that allow it."
        )
    return path


def _arrays(params: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    with jax.enable_x64(True):
        return {name: jnp.asarray(value) for name, value in params.items()}


def _score(
    params: Mapping[str, jax.Array], block: Block, chunks: jax.Array, log_before: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    first = first_scores(log_before, block.at_start, params["initial"], params["transition"])
    return viterbi_scores(first, params["transition"], chunks, block.length)


def _trace(
    params: Mapping[str, jax.Array], scored: tuple[jax.Array, jax.Array, jax.Array], following: jax.Array
) -> jax.Array:
    scores, shift, origins = scored
    onward = origins[-1].astype(jnp.int32)[jnp.maximum(following, 0), jnp.arange(following.shape[0])]
    last = jnp.where(following >= 0, onward, jnp.argmax(scores, axis=0).astype(jnp.int32))
    # Minus one marks chunks that no path can pass.
    return jnp.where(jnp.isneginf(shift)[None, :], -1, trace_back(origins, last))


def _filter(
    params: Mapping[str, jax.Array], block: Block, chunks: jax.Array, log_before: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    filtered = filter_messages(log_before, block.at_start, params["initial"], params["transition"], chunks)
    return filtered.log_alpha, jax.random.uniform(key, (chunks.shape[0], chunks.shape[2]), chunks.dtype)


def _draw(
    params: Mapping[str, jax.Array], prepared: tuple[jax.Array, jax.Array], following: jax.Array
) -> jax.Array:
    log_alpha, uniforms = prepared
    return sample_paths(log_alpha, params["transition"], uniforms, following)


BEST, DRAWN = Walk(_score, _trace), Walk(_filter, _draw)


def _chunks(model: HMM, params: Mapping[str, jax.Array], block: Block) -> jax.Array:
    logs = model.log_likelihoods(params, block.values, block.observed, block.states)
    return chunk_log_likelihoods(logs, block.rows)


@partial(jax.jit, static_argnames=("model",))
def _score_block(model: HMM, params: Mapping[str, jax.Array], block: Block) -> tuple[jax.Array, jax.Array]:
    initial, transition = params["initial"], params["transition"]
    logs = model.log_likelihoods(params, block.values, block.observed, block.states)
    before = guessed_before(viterbi_messages, initial, transition, logs, block)
    before = before - jnp.max(before, axis=0)
    chunks = chunk_log_likelihoods(logs, block.rows)
    messages = viterbi_messages(before, block.at_start, initial, transition, chunks)
    return before, at_last_time(messages, block.length, before)


@partial(jax.jit, static_argnames=("model",))
def _carry_scores(
    model: HMM, params: Mapping[str, jax.Array], block: Block, carry: jax.Array
) -> tuple[jax.Array, jax.Array]:
    logs = model.log_likelihoods(params, block.values, block.observed, block.states)
    return carried_before(viterbi_messages, carry, params["initial"], params["transition"], logs, block)


@partial(jax.jit, static_argnames=("model", "walk"))
def _first_states(
    model: HMM, walk: Walk, params: Mapping[str, jax.Array], block: Block, before: jax.Array, key: jax.Array
) -> jax.Array:
    """First state of every chunk for each state that may follow it, `(K + 1, W)`; the last row: nothing follows."""
    prepared = walk.forward(params, block, _chunks(model, params, block), jnp.asarray(before), key)

    def one(following: jax.Array) -> jax.Array:
        return walk.back(params, prepared, jnp.full(block.length.shape, following))[0]

    # One at a time: K paths at once would multiply the memory of a block by K.
    return jax.lax.map(one, jnp.concatenate([jnp.arange(model.n_states), jnp.full(1, -1)]).astype(jnp.int32))


@partial(jax.jit, static_argnames=("model", "walk"))
def _fill(
    model: HMM,
    walk: Walk,
    params: Mapping[str, jax.Array],
    block: Block,
    before: jax.Array,
    following: jax.Array,
    key: jax.Array,
) -> jax.Array:
    prepared = walk.forward(params, block, _chunks(model, params, block), jnp.asarray(before), key)
    return walk.back(params, prepared, jnp.asarray(following))
