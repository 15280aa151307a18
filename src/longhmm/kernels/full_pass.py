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
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels.blocks import Block, Plan
from longhmm.kernels.densities import as_arrays, read_block
from longhmm.kernels.edges import (
    Edges,
    carried_after,
    carried_before,
    chunk_log_likelihoods,
    guessed_after,
    guessed_before,
    log_filtered,
)
from longhmm.kernels.proofs import pair, predicted, proved_blocks, same_laws, same_messages, settled
from longhmm.messages.forward import filter_messages
from longhmm.messages.forward_backward import forward_backward
from longhmm.messages.scaling import forgets_nothing
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
    """Raw outcome of one block: the statistics, and the messages with which its edges are proved.

    Attributes:
        weights: `(R, K)` probabilities of the block's own rows, zero elsewhere.
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
        self.arrays = as_arrays(self.params)
        self.smooth = smooth
        self.plan = Plan(sequences, model.n_states)

    def results(self) -> Iterator[BlockResult]:
        def run(index: int, reach: int) -> _Run:
            return self._run(index, reach, None)

        for index, reach, done in proved_blocks(self.plan, run, self._agree, self._carried):
            yield self._result(index, reach, done)

    def _run(self, index: int, reach: int, edges: Edges | None) -> _Run:
        block, logs = read_block(self.model, self.arrays, self.plan, index, reach)
        with jax.enable_x64(True):
            laws = (self.arrays["initial"], self.arrays["transition"])
            run = _run_messages(self.smooth, *laws, logs, block.tables(), edges)
            collected = _collect(self.model, self.collect, self.arrays, block, run.weights)
            # What goes out, and what the next block is proved against: no reason to keep the weights.
            return jax.tree.map(np.asarray, run._replace(weights=None, collected=collected))

    def _agree(self, index: int, previous: _Run | None, run: _Run) -> bool:
        """Whether the edges of all chunks are exact (see `proofs`)."""
        joints = self.plan.joints(index)
        row, lane = run.impossible
        if row >= 0:
            # Only what leads up to that row is of interest: there are no posteriors.
            joints = joints[: lane + 1]
        leaving, started = pair(joints, previous, run, "leaving", "before")
        transition = self.params["transition"]
        if not same_messages(predicted(leaving, transition), predicted(started, transition)):
            return False
        if row >= 0 or not self.smooth:
            return True
        # From right to left; the block before has been proved at its right edge by its own `endings`.
        leaving, _ = pair(joints, None, run, "leaving", "before")
        after, entering = pair(joints, None, run, "after", "entering")
        return same_laws(leaving + after, leaving + entering) and settled(run.leaving[:, -1], run.endings)

    def _carried(self, begin: int, previous: _Run | None) -> Iterator[tuple[int, int, _Run]]:
        """The rest of the pass with messages carried from end to end: always exact, one chunk after the other."""
        n_states, lanes = self.model.n_states, self.plan.lanes
        transition = self.arrays["transition"]
        before: dict[int, np.ndarray] = {}
        after: dict[int, np.ndarray] = {}
        # The first chunk of all begins a sequence, so what is carried into it does not matter.
        carry = np.full(n_states, -np.log(n_states)) if previous is None else previous.leaving[:, -1]
        for index in range(begin, self.plan.n_blocks):
            block, logs = read_block(self.model, self.arrays, self.plan, index, 0)
            with jax.enable_x64(True):
                laws, carry = _carry_right(self.arrays["initial"], transition, logs, block.tables(), carry)
            before[index] = np.asarray(laws)
        carry = np.zeros(n_states)
        for index in reversed(before):
            after[index] = np.zeros((n_states, lanes))
            if self.smooth:
                block, logs = read_block(self.model, self.arrays, self.plan, index, 0)
                with jax.enable_x64(True):
                    messages, carry = _carry_left(transition, logs, block.tables(), carry)
                after[index] = np.asarray(messages)
        for index in range(begin, self.plan.n_blocks):
            yield index, 0, self._run(index, 0, Edges(before.pop(index), after.pop(index)))

    def _result(self, index: int, reach: int, run: _Run) -> BlockResult:
        start, stop = self.plan.bounds(index)
        row = int(run.impossible[0])
        if row >= 0:
            position = self.plan.position(index, reach, row)
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
            run.first,
            run.transitions,
            run.before,
            run.collected,
        )


@partial(jax.jit, static_argnames=("smooth",))
def _run_messages(
    smooth: bool,
    initial: jax.Array,
    transition: jax.Array,
    logs: jax.Array,
    block: Block,
    edges: Edges | None,
) -> _Run:
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
            lambda: log_filtered(before, block.at_start, initial, transition, chunks)[-1],
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
    return _Run(
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


@jax.jit
def _carry_right(
    initial: jax.Array, transition: jax.Array, logs: jax.Array, block: Block, carry: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return carried_before(log_filtered, carry, initial, transition, logs, block)


@jax.jit
def _carry_left(transition: jax.Array, logs: jax.Array, block: Block, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
    return carried_after(carry, transition, logs, block)
