"""Exact passes over data of any length, streamed in blocks: bounded memory, all chunks of a block at once.

`posterior_pass` runs forward-backward, `filter_pass` the forward recursion alone. Both yield one `BlockResult` per
block; what is computed from the posteriors inside a block is given by a `Collector`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError, ModelError
from longhmm.kernels.blocks import Block, Plan
from longhmm.kernels.edges import (
    TOLERANCE,
    Edges,
    at_last_time,
    carried_after,
    carried_before,
    chunk_log_likelihoods,
    disagreement,
    guessed_after,
    guessed_before,
    log_filtered,
    pair,
    proved_blocks,
)
from longhmm.messages.forward import filter_messages
from longhmm.messages.forward_backward import forward_backward
from longhmm.model.hmm import HMM

# Called inside the compiled block as collect(model, params, block, weights) with weights (R, K): the smoothed (or
# filtered) probabilities of the block's own rows, zero elsewhere. Returns any tree of arrays.
Collector = Callable[[HMM, Mapping[str, jax.Array], Block, jax.Array], Any]
Progress = Callable[[int], None]


class BlockResult(NamedTuple):
    """What one block of rows `[start, stop)` contributes.

    Attributes:
        start, stop: rows of the data that the block owns.
        own: slice of the block's rows in any `(R, ...)` array that the collector returned.
        log_likelihood: sum over these rows of `log p(y_t | y_0 .. y_{t-1})`.
        first: `(K,)` sum of `P(x = k | all y)` over the first observations of sequences.
        transitions: `(K, K)` sum of `xi` over these rows.
        before: `(K, W)` logarithm of the law of the state before each chunk of the block.
        collected: what the collector returned.
    """

    start: int
    stop: int
    own: slice
    log_likelihood: float
    first: np.ndarray
    transitions: np.ndarray
    before: np.ndarray
    collected: Any


class _Run(NamedTuple):
    """Raw outcome of one block: the statistics, and the messages with which its edges are proved."""

    log_likelihood: jax.Array
    first: jax.Array
    transitions: jax.Array
    collected: Any
    impossible_row: jax.Array
    any_nan: jax.Array
    before: jax.Array
    after: jax.Array
    leaving: jax.Array
    entering: jax.Array


def collect_nothing(model: HMM, params: Mapping[str, jax.Array], block: Block, weights: jax.Array) -> None:
    """For passes that only need transitions, first states and the likelihood."""


def collect_weights(model: HMM, params: Mapping[str, jax.Array], block: Block, weights: jax.Array) -> jax.Array:
    """The probabilities themselves, `(R, K)`."""
    return weights


def posterior_pass(
    model: HMM,
    params: Mapping[str, Any],
    sequences: Sequences,
    collect: Collector = collect_nothing,
    progress: Progress | None = None,
) -> Iterator[BlockResult]:
    """Forward-backward over all data, in float64, exact to rounding."""
    yield from _Pass(model, params, sequences, collect, progress, smooth=True).results()


def filter_pass(
    model: HMM,
    params: Mapping[str, Any],
    sequences: Sequences,
    collect: Collector = collect_nothing,
    progress: Progress | None = None,
) -> Iterator[BlockResult]:
    """The forward recursion over all data, in float64; the collector receives `P(x_t = k | y_0 .. y_t)`."""
    yield from _Pass(model, params, sequences, collect, progress, smooth=False).results()


class _Pass:
    """One pass over the blocks, in order."""

    def __init__(
        self,
        model: HMM,
        params: Mapping[str, Any],
        sequences: Sequences,
        collect: Collector,
        progress: Progress | None,
        *,
        smooth: bool,
    ) -> None:
        model.check_dim(sequences)
        self.model, self.sequences, self.collect, self.progress = model, sequences, collect, progress
        self.params = model.validate(params)
        self.smooth = smooth
        self.plan = Plan(sequences, model.n_states)

    def results(self) -> Iterator[BlockResult]:
        with jax.enable_x64(True):
            params = {name: jnp.asarray(value) for name, value in self.params.items()}

        def run(index: int, reach: int) -> _Run:
            return self._run(params, index, reach, None)

        for index, reach, done in proved_blocks(self.plan, run, self._agree, partial(self._carried, params)):
            yield self._result(index, reach, done)

    def _run(self, params: Mapping[str, jax.Array], index: int, reach: int, edges: Edges | None) -> _Run:
        block = self.plan.read(index, reach)
        start = self.plan.position(index, reach, 0)
        self.model.check_rows(self.sequences, block.values, block.observed, start)
        partial_rows = bool(np.any(block.observed.any(axis=1) != block.observed.all(axis=1)))
        with jax.enable_x64(True):
            run = _run_block(self.model, self.collect, self.smooth, partial_rows, params, block, edges)
            run = run._replace(
                **{
                    name: np.asarray(getattr(run, name))
                    for name in ("impossible_row", "any_nan", "before", "after", "leaving", "entering")
                }
            )
        if run.any_nan:
            raise ModelError(
                f"params gave a log density that is not a number for data near {self.sequences.describe(start + reach)}: "
                f"every parameter must be finite and inside its support."
            )
        return run

    def _agree(self, index: int, previous: _Run | None, run: _Run) -> bool:
        """Whether each chunk started from what its predecessor ended with, and ended with what its successor saw."""
        if run.impossible_row >= 0:
            return True  # nothing to prove: the result is minus infinity whatever the edges were
        joints = self.plan.joints(index)
        leaving, started = pair(joints, previous, run, "leaving", "before")
        after, entering = pair(joints, previous, run, "after", "entering")
        if disagreement(leaving, started) > TOLERANCE:
            return False
        # The posterior at each joint, seen from both sides.
        return not self.smooth or disagreement(leaving + after, started + entering) <= TOLERANCE

    def _carried(self, params: Mapping[str, jax.Array], begin: int) -> Iterator[tuple[int, int, _Run]]:
        """The rest of the pass with messages carried from end to end: always exact, one chunk after the other."""
        n_states, lanes = self.model.n_states, self.plan.lanes
        before: dict[int, np.ndarray] = {}
        after: dict[int, np.ndarray] = {}
        with jax.enable_x64(True):
            carry = jnp.full(n_states, -np.log(n_states))
            for index in range(self.plan.n_blocks):
                laws, carry = _carry_right(self.model, params, self.plan.read(index, 0), carry)
                if index >= begin:
                    before[index] = np.asarray(laws)
            carry = jnp.zeros(n_states)
            for index in reversed(before):
                after[index] = np.zeros((n_states, lanes))
                if self.smooth:
                    messages, carry = _carry_left(self.model, params, self.plan.read(index, 0), carry)
                    after[index] = np.asarray(messages)
        for index in range(begin, self.plan.n_blocks):
            yield index, 0, self._run(params, index, 0, Edges(before.pop(index), after.pop(index)))

    def _result(self, index: int, reach: int, run: _Run) -> BlockResult:
        start, stop = self.plan.bounds(index)
        if run.impossible_row >= 0:
            position = self.plan.position(index, reach, int(run.impossible_row))
            raise ImpossibleObservationError(
                f"No reachable state can have produced {self.sequences.describe(position)}: its likelihood is zero "
                "under the parameters; mark it as missing (NaN), or use an emission or transitions that allow it."
            )
        if self.progress is not None:
            self.progress(stop - start)
        return BlockResult(
            start,
            stop,
            slice(reach, reach + stop - start),
            float(run.log_likelihood),
            np.asarray(run.first),
            np.asarray(run.transitions),
            run.before,
            jax.tree.map(np.asarray, run.collected),
        )


def _row_log_likelihoods(
    model: HMM, params: Mapping[str, jax.Array], block: Block, partial_rows: bool = True
) -> jax.Array:
    return model.log_likelihoods(params, block.values, block.observed, block.states, partial=partial_rows)


@partial(jax.jit, static_argnames=("model", "collect", "smooth", "partial_rows"))
def _run_block(
    model: HMM,
    collect: Collector,
    smooth: bool,
    partial_rows: bool,
    params: Mapping[str, jax.Array],
    block: Block,
    edges: Edges | None,
) -> _Run:
    initial, transition = params["initial"], params["transition"]
    logs = _row_log_likelihoods(model, params, block, partial_rows)
    chunks = chunk_log_likelihoods(logs, block.rows)
    if edges is None:
        before = guessed_before(log_filtered, initial, transition, logs, block)
        after = guessed_after(transition, logs, block) if smooth else jnp.zeros_like(before)
    else:
        before, after = jnp.asarray(edges.before), jnp.asarray(edges.after)
    times = jnp.arange(block.rows.shape[0])[:, None] < block.length[None, :]
    if smooth:
        smoothed = forward_backward(before, after, block.at_start, initial, transition, chunks, times)
        weights, log_normaliser = smoothed.gamma, smoothed.log_normaliser
        transitions, impossible_at = jnp.sum(smoothed.transitions, axis=2), smoothed.impossible_at
        leaving, entering = smoothed.log_leaving, smoothed.log_entering
    else:
        filtered = filter_messages(before, block.at_start, initial, transition, chunks)
        weights, log_normaliser = jnp.exp(filtered.log_alpha), filtered.log_normaliser
        transitions, impossible_at = jnp.zeros_like(transition), filtered.impossible_at
        leaving, entering = at_last_time(filtered.log_alpha, block.length, before), before
    first = jnp.sum(jnp.where(block.at_start & (block.length > 0), weights[0], 0.0), axis=1)
    # Back to rows; padding lands in a row that is cut off.
    n_rows = block.values.shape[0]
    flat = jnp.zeros((n_rows + 1, logs.shape[1]), logs.dtype)
    flat = flat.at[block.rows].set(jnp.swapaxes(weights, 1, 2))[:n_rows]
    flat = jnp.where(jnp.asarray(block.own)[:, None], flat, 0.0)
    collected = collect(model, params, block, flat)
    found = (impossible_at >= 0) & (block.length > 0)
    lane = jnp.argmax(found)
    impossible_row = jnp.where(jnp.any(found), block.rows[jnp.maximum(impossible_at[lane], 0), lane], -1)
    any_nan = jnp.any(jnp.isnan(logs) & jnp.asarray(block.own)[:, None])
    total = jnp.sum(jnp.where(times, log_normaliser, 0.0))
    return _Run(total, first, transitions, collected, impossible_row, any_nan, before, after, leaving, entering)


@partial(jax.jit, static_argnames=("model",))
def _carry_right(
    model: HMM, params: Mapping[str, jax.Array], block: Block, carry: jax.Array
) -> tuple[jax.Array, jax.Array]:
    logs = _row_log_likelihoods(model, params, block)
    return carried_before(log_filtered, carry, params["initial"], params["transition"], logs, block)


@partial(jax.jit, static_argnames=("model",))
def _carry_left(
    model: HMM, params: Mapping[str, jax.Array], block: Block, carry: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return carried_after(carry, params["transition"], _row_log_likelihoods(model, params, block), block)
