"""What a pass does with one block of rows, near the data: guess or carry messages, run the recursion, collect.

Each kind of work is a function that gets ready for many blocks (see `data.executor`); the pass that asks for it, and
proves what comes back, is in `full_pass`.
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
from longhmm.kernels.edges import (
    Edges,
    Forward,
    chunk_log_likelihoods,
    guessed_after,
    guessed_before,
    log_filtered,
    transfers,
)
from longhmm.messages.forward import filter_messages
from longhmm.messages.forward_backward import forward_backward
from longhmm.messages.scaling import forgets_nothing
from longhmm.model.hmm import HMM

# Called inside the compiled block as collect(model, params, block, weights) with weights (R, K): the smoothed (or
# filtered) probabilities of the block's own rows, zero elsewhere. Returns any tree of arrays.
Collector = Callable[[HMM, Mapping[str, jax.Array], Block, jax.Array], Any]


class Own(NamedTuple):
    """What a reducer is told of a block that owns the rows `[start, stop)`.

    Attributes:
        openings: which of these rows begin a sequence, counted from `start`.
        before: `(K,)`, logarithm of the law of the state before the first row; meaningless where a sequence begins.
        collected: what the collector returned, cut to these rows.
    """

    start: int
    stop: int
    openings: np.ndarray
    before: np.ndarray
    collected: Any


# Makes something small of the rows that a collector returned, before anything leaves the place where they are.
Reducer = Callable[[Own], Any]


class How(NamedTuple):
    """What is constant in a pass: checked parameters, collector, reducer (or None), whether states are smoothed, and
    the shape of the plan."""

    params: dict[str, np.ndarray]
    collect: Collector
    reduce: Reducer | None
    smooth: bool
    shape: tuple[int, int]


class Run(NamedTuple):
    """Raw outcome of one block: the statistics, and the messages with which its edges are proved.

    Attributes:
        weights: `(R, K)` probabilities of the block's own rows, zero elsewhere; not handed on.
        impossible: row and lane of the first observation that no reachable state allows, or -1 and -1.
        before, leaving: `(K, W)` logarithm of the law before each chunk, and of the law at its end.
        after, entering: `(K, W)` backward message at each chunk's end, and the one before its first time.
        endings: `(K, K)` see `guessed_after`.
    """

    log_likelihood: Any
    first: Any
    transitions: Any
    weights: Any
    collected: Any
    impossible: Any
    before: Any
    leaving: Any
    after: Any
    entering: Any
    endings: Any


def run_blocks(how: How, model: HMM, sequences: Sequences) -> Callable[[tuple[int, int, Edges | None]], Run]:
    """Blocks by index, reach, and the messages at their edges (None: guessed from the reach)."""
    arrays, plan = as_arrays(how.params), Plan(sequences, model.n_states, how.shape)

    def run_block(asked: tuple[int, int, Edges | None]) -> Run:
        index, reach, edges = asked
        block, logs = read_block(model, arrays, plan, index, reach)
        with jax.enable_x64(True):
            run = _run_messages(how.smooth, arrays["initial"], arrays["transition"], logs, block.tables(), edges)
            collected = _collect(model, how.collect, arrays, block, run.weights)
            # What goes out, and what the next block is proved against: no reason to keep the weights.
            run = jax.tree.map(np.asarray, run._replace(weights=None, collected=collected))
        if how.reduce is None:
            return run
        start, stop = plan.bounds(index)
        rows = jax.tree.map(lambda each: each[reach : reach + stop - start], run.collected)
        first, last = np.searchsorted(sequences.offsets, [start, stop])
        own = Own(start, stop, sequences.offsets[first:last] - start, run.before[:, 0], rows)
        return run._replace(collected=how.reduce(own))

    return run_block


def transfer_blocks(
    params: dict[str, np.ndarray], shape: tuple[int, int], forward: Forward, model: HMM, sequences: Sequences
) -> Callable[[int], np.ndarray]:
    """What every chunk of a block does to messages, by the block's index (see `edges.transfers`)."""
    arrays, plan = as_arrays(params), Plan(sequences, model.n_states, shape)

    def transfer_block(index: int) -> np.ndarray:
        block, logs = read_block(model, arrays, plan, index, 0)
        with jax.enable_x64(True):
            return np.asarray(_transfers(forward, arrays["transition"], logs, block.tables()))

    return transfer_block


@partial(jax.jit, static_argnames=("forward",))
def _transfers(forward: Forward, transition: jax.Array, logs: jax.Array, block: Block) -> jax.Array:
    return transfers(forward, block.at_start, transition, chunk_log_likelihoods(logs, block.rows))


@partial(jax.jit, static_argnames=("smooth",))
def _run_messages(
    smooth: bool,
    initial: jax.Array,
    transition: jax.Array,
    logs: jax.Array,
    block: Block,
    edges: Edges | None,
) -> Run:
    chunks = chunk_log_likelihoods(logs, block.rows)
    endings = jnp.zeros_like(transition)
    after = jnp.zeros((transition.shape[0], block.length.shape[0]), logs.dtype)
    if edges is None:
        before = guessed_before(log_filtered, initial, transition, logs, block)
        if smooth:
            after, endings = guessed_after(transition, logs, block)
    else:
        before, after = jnp.asarray(edges.before), jnp.asarray(edges.after)
    times = jnp.arange(block.rows.shape[0])[:, None] < block.length[None, :]
    if smooth:
        smoothed = forward_backward(before, after, block.at_start, initial, transition, chunks, times)
        weights, log_normaliser = smoothed.gamma, smoothed.log_normaliser
        transitions, impossible_at = jnp.sum(smoothed.transitions, axis=2), smoothed.impossible_at
        entering = smoothed.log_entering
        # With forbidden transitions the fast recursion may lose messages that are too small for it: of no consequence
        # for the posterior of this chunk, but the proof wants them.
        leaving = jax.lax.cond(
            forgets_nothing(transition),
            lambda: smoothed.log_leaving,
            lambda: log_filtered(before, block.at_start, initial, transition, chunks)[0][-1],
        )
    else:
        filtered = filter_messages(before, block.at_start, initial, transition, chunks)
        weights, log_normaliser = jnp.exp(filtered.log_alpha), filtered.log_normaliser
        transitions, impossible_at = jnp.zeros_like(transition), filtered.impossible_at
        leaving, entering = filtered.log_alpha[-1], before
    first = jnp.sum(jnp.where(block.at_start & (block.length > 0), weights[0], 0.0), axis=1)
    # Back to rows; padding lands in a row that is cut off.
    n_rows = logs.shape[0]
    flat = jnp.zeros((n_rows + 1, logs.shape[1]), logs.dtype)
    flat = flat.at[block.rows].set(jnp.swapaxes(weights, 1, 2))[:n_rows]
    found = (impossible_at >= 0) & (block.length > 0)
    lane = jnp.argmax(found)
    place = jnp.stack([block.rows[jnp.maximum(impossible_at[lane], 0), lane], lane.astype(jnp.int32)])
    return Run(
        jnp.sum(jnp.where(times, log_normaliser, 0.0)),
        first,
        transitions,
        flat,
        None,
        jnp.where(jnp.any(found), place, -1),
        before,
        leaving,
        after,
        entering,
        endings,
    )


@partial(jax.jit, static_argnames=("model", "collect"))
def _collect(model: HMM, collect: Collector, params: Mapping[str, jax.Array], block: Block, weights: jax.Array) -> Any:
    return collect(model, params, block, weights)
