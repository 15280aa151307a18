"""Exact passes over data of any length, streamed in blocks: bounded memory, all chunks of a block at once.

`posterior_pass` runs forward-backward, `filter_pass` the forward recursion alone. Both yield one `BlockResult` per
block; what is computed from the posteriors inside a block is given by a `Collector`. Blocks run wherever the executor
of the data takes them; that their edges are exact is proved here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels.block_messages import Collector, How, Reducer, Run, run_blocks, transfer_blocks
from longhmm.kernels.blocks import Block, Plan
from longhmm.kernels.edges import Edges, carried_after, carried_before, log_filtered
from longhmm.kernels.proofs import TOLERANCE, before_each, filtered_gap, proved_blocks, smoothed_gap, unsettled_gap
from longhmm.model.hmm import HMM

Progress = Callable[[int], None]
MOST_KEPT = 1 << 24  # numbers in what chunks do to messages; where there are more, they are computed a second time


class BlockResult(NamedTuple):
    """What one block of rows `[start, stop)` contributes.

    Attributes:
        start, stop: rows of the data that the block owns.
        own: slice of the block's rows in any `(R, ...)` array that the collector returned.
        log_likelihood: sum over these rows of `log p(y_t | y_0 .. y_{t-1})`.
        first: `(K,)` sum of `P(x = k | all y)` over the first observations of sequences.
        transitions: `(K, K)` sum of `xi` over these rows.
        before: `(K, W)` logarithm of the law of the state before each chunk of the block.
        collected: what the collector returned, or what the reducer made of it.
    """

    start: int
    stop: int
    own: slice
    log_likelihood: float
    first: np.ndarray
    transitions: np.ndarray
    before: np.ndarray
    collected: Any


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
    reduce: Reducer | None = None,
) -> Iterator[BlockResult]:
    """Forward-backward over all data, in float64, exact to rounding."""
    yield from _Pass(model, params, sequences, collect, progress, reduce, smooth=True).results()


def filter_pass(
    model: HMM,
    params: Mapping[str, Any],
    sequences: Sequences,
    collect: Collector = collect_nothing,
    progress: Progress | None = None,
    reduce: Reducer | None = None,
) -> Iterator[BlockResult]:
    """The forward recursion over all data, in float64; the collector receives `P(x_t = k | y_0 .. y_t)`."""
    yield from _Pass(model, params, sequences, collect, progress, reduce, smooth=False).results()


class _Pass:
    """One pass over the blocks, in order."""

    def __init__(
        self,
        model: HMM,
        params: Mapping[str, Any],
        sequences: Sequences,
        collect: Collector,
        progress: Progress | None,
        reduce: Reducer | None,
        *,
        smooth: bool,
    ) -> None:
        model.check_dim(sequences)
        self.model, self.sequences, self.progress, self.smooth = model, sequences, progress, smooth
        self.plan = Plan(sequences, model.n_states)
        self.how = How(model.validate(params), collect, reduce, smooth, self.plan.shape)

    def results(self) -> Iterator[BlockResult]:
        for index, reach, done in proved_blocks(self.plan.n_blocks, self._guessed, self._agree, self._carried):
            yield self._result(index, reach, done)

    def _guessed(self, indices: Iterable[int], reach: int) -> Iterator[Run]:
        return self._run((index, reach, None) for index in indices)

    def _run(self, asked: Iterable[tuple[int, int, Edges | None]]) -> Iterator[Run]:
        tasks = (self.plan.task(each[0], each[1], each) for each in asked)
        return self.sequences.executor.run(partial(run_blocks, self.how), self.model, self.sequences, tasks)

    def _agree(self, index: int, previous: Run | None, run: Run) -> bool:
        """Whether the edges of all chunks are exact (see `proofs`)."""
        joints = self.plan.joints(index)
        row, lane = run.impossible
        if row >= 0:
            # Only what leads up to that row is of interest: there are no posteriors.
            joints[lane + 1 :] = False
        leaving = before_each(None if previous is None else previous.leaving, run.leaving)
        with jax.enable_x64(True):
            gap = filtered_gap(self.how.params["transition"], leaving, run.before)
            if not np.all(np.asarray(gap)[joints] <= TOLERANCE):
                return False
            if row >= 0 or not self.smooth:
                return True
            # From right to left; the block before has been proved at its right edge by its own `endings`.
            joints[0] = False
            gap = smoothed_gap(leaving, before_each(None, run.after), run.entering)
            open_end = unsettled_gap(run.leaving[:, -1], run.endings)
            return bool(np.all(np.asarray(gap)[joints] <= TOLERANCE) and open_end <= TOLERANCE)

    def _carried(self, begin: int, previous: Run | None) -> Iterator[tuple[int, int, Run]]:
        """The rest of the pass with messages carried from end to end: always exact."""
        n_states, indices = self.model.n_states, range(begin, self.plan.n_blocks)
        # The first chunk of all begins a sequence, so what is carried into it does not matter.
        carry = np.full(n_states, -np.log(n_states)) if previous is None else previous.leaving[:, -1]
        before, after = {}, {index: np.zeros((n_states, self.plan.lanes)) for index in indices}
        initial, found = self.how.params["initial"], self._transfers(indices)
        keep = self.smooth and len(indices) * self.plan.lanes * n_states**2 <= MOST_KEPT
        kept = list(found) if keep else None
        for index, transfer in kept or found:
            before[index], carry = _on_host(carried_before, carry, initial, transfer, ~self.plan.joints(index))
        if self.smooth:
            carry, found = np.zeros(n_states), self._transfers(reversed(indices)) if kept is None else reversed(kept)
            for index, transfer in found:
                after[index], carry = _on_host(carried_after, carry, transfer, self.plan.spans(index)[1])
        asked = ((index, 0, Edges(before.pop(index), after.pop(index))) for index in indices)
        yield from ((index, 0, run) for index, run in zip(indices, self._run(asked), strict=True))

    def _transfers(self, indices: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        """What the chunks of each block do to messages."""
        work = partial(transfer_blocks, self.how.params, self.plan.shape, log_filtered)
        asked = list(indices)
        tasks = (self.plan.task(index, 0, index) for index in asked)
        return zip(asked, self.sequences.executor.run(work, self.model, self.sequences, tasks), strict=True)

    def _result(self, index: int, reach: int, run: Run) -> BlockResult:
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


def _on_host(run: Callable[..., Any], *arguments: Any) -> Any:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, run(*arguments))
