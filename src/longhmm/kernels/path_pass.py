"""Whole paths of states over data of any length: the most probable one, or draws from their posterior.

A path is fixed from the end backwards, so it takes two sweeps. The first finds, for every chunk, the map from the
state that follows the chunk to the chunk's first state. Following these maps from the end of each sequence fixes the
state after every chunk, and the second sweep fills the chunks in. Memory holds a few numbers per chunk and the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels.blocks import Block, Plan
from longhmm.kernels.densities import as_arrays, read_block
from longhmm.kernels.edges import carried_before, chunk_log_likelihoods, guessed_before
from longhmm.kernels.full_pass import Progress, filter_pass
from longhmm.kernels.proofs import moved_scores, pair, proved_blocks, same_messages
from longhmm.messages.forward import filter_messages
from longhmm.messages.path_sampling import sample_paths
from longhmm.messages.viterbi import first_scores, trace_back, viterbi_messages, viterbi_scores
from longhmm.model.hmm import HMM

SCORE_TOLERANCE = 1e-8  # scores are sums of thousands of log probabilities in double precision


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


class _Scores(NamedTuple):
    before: np.ndarray
    leaving: np.ndarray


def best_path(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, progress: Progress | None = None
) -> np.ndarray:
    """The most probable path of states (Viterbi), `(T,)`, exact for every sequence."""
    model.check_dim(sequences)
    plan = Plan(sequences, model.n_states)
    complete = model.validate(params)
    arrays = as_arrays(complete)
    laws = _Laws(arrays["initial"], arrays["transition"])

    def run(index: int, reach: int) -> _Scores:
        block, logs = read_block(model, arrays, plan, index, reach)
        with jax.enable_x64(True):
            before, leaving = _score_block(laws, logs, block.tables())
        scores = _Scores(np.asarray(before), np.asarray(leaving))
        if np.isneginf(scores.leaving.max(axis=0)).any():
            _refuse(model, params, sequences)
        return scores

    def agree(index: int, previous: _Scores | None, scores: _Scores) -> bool:
        sides = pair(plan.joints(index), previous, scores, "leaving", "before")
        left, right = (moved_scores(side, complete["transition"]) for side in sides)
        return same_messages(left, right, SCORE_TOLERANCE)

    def carried(begin: int, previous: _Scores | None) -> Iterator[tuple[int, int, _Scores]]:
        carry = np.zeros(model.n_states) if previous is None else previous.leaving[:, -1]
        for index in range(begin, plan.n_blocks):
            block, logs = read_block(model, arrays, plan, index, 0)
            with jax.enable_x64(True):
                before, carry = _carry_scores(laws, logs, block.tables(), carry)
            yield index, 0, _Scores(np.asarray(before), np.zeros((0, 0)))

    before = [scores.before for _, _, scores in proved_blocks(plan, run, agree, carried)]
    path = _join(model, arrays, plan, before, BEST, jax.random.key(0), progress)
    if (path < 0).any():
        _refuse(model, params, sequences)
    return path


def sampled_path(
    model: HMM,
    params: Mapping[str, Any],
    sequences: Sequences,
    key: jax.Array,
    progress: Progress | None = None,
    *,
    laws: list[np.ndarray] | None = None,
) -> np.ndarray:
    """One path of states drawn from `P(x | all y)`, `(T,)`. `laws`, from `filtered_laws`, serve many draws."""
    if laws is None:
        laws = filtered_laws(model, params, sequences)
    arrays = as_arrays(model.validate(params))
    return _join(model, arrays, Plan(sequences, model.n_states), laws, DRAWN, key, progress)


def filtered_laws(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> list[np.ndarray]:
    """Logarithm of the law of the state before every chunk given what came before it, `(K, W)` for each block."""
    return [result.before for result in filter_pass(model, params, sequences)]


def _refuse(model: HMM, params: Mapping[str, Any], sequences: Sequences) -> NoReturn:
    filtered_laws(model, params, sequences)  # raises, and names the row
    raise ImpossibleObservationError(
        f"No path of states has a positive probability for {sequences.name}: mark impossible observations as missing "
        "(NaN), or use an emission or transitions that allow them."
    )


def _join(
    model: HMM,
    params: Mapping[str, jax.Array],
    plan: Plan,
    before: list[np.ndarray],
    walk: Walk,
    key: jax.Array,
    progress: Progress | None,
) -> np.ndarray:
    small = np.int8 if model.n_states <= 127 else np.int16
    laws = _Laws(params["initial"], params["transition"])
    following: dict[int, np.ndarray] = {}
    state = -1  # the first state of the chunk to the right
    for index in reversed(range(plan.n_blocks)):
        block, logs = read_block(model, params, plan, index, 0)
        with jax.enable_x64(True):
            chunk_key = jax.random.fold_in(key, index)
            maps = np.asarray(_first_states(walk, laws, logs, block.tables(), before[index], chunk_key))
        after = np.full(plan.lanes, -1, np.int32)
        for lane in reversed(np.flatnonzero(block.length)):
            after[lane] = -1 if block.at_end[lane] else state
            state = int(maps[after[lane], lane])
        following[index] = after
    path = np.empty(plan.sequences.length, small)
    for index in range(plan.n_blocks):
        block, logs = read_block(model, params, plan, index, 0)
        start, stop = plan.bounds(index)
        with jax.enable_x64(True):
            chunk_key = jax.random.fold_in(key, index)
            tables = block.tables()
            states = np.asarray(_fill(walk, laws, logs, tables, before[index], following[index], chunk_key))
        inside = block.rows < len(block.values)
        path[start + block.rows[inside]] = states[inside]
        if progress is not None:
            progress(stop - start)
    return path


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
