"""What a pass with the fused kernel does with one block of chunks, near the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels import native
from longhmm.kernels.block_messages import Collector
from longhmm.kernels.chunk_calls import ChunkCalls
from longhmm.kernels.full_pass import collect_nothing
from longhmm.kernels.proofs import ROUNDING, TOLERANCE
from longhmm.model.hmm import HMM


class How(NamedTuple):
    """What is constant in a pass: checked parameters, collector, whether only the forward recursion runs, whether the
    probabilities of states are wanted, and the length of a chunk."""

    params: dict[str, np.ndarray]
    collect: Collector
    forward_only: bool
    probabilities: bool
    chunk: int


class Totals(NamedTuple):
    """Sums over all data, or over a block of them.

    Attributes:
        log_likelihood: `log p(y)`.
        first: `(K,)`, expected first states.
        transitions: `(K, K)`, expected transitions.
        sums: `(K, sums)`, what the emission's form asks for; None where log likelihoods were handed over.
        collected: sum of what the collector returned, only where log likelihoods were handed over.
    """

    log_likelihood: float
    first: np.ndarray
    transitions: np.ndarray
    sums: np.ndarray | None
    collected: Any


class Edges(NamedTuple):
    """Messages at both edges of chunks, `(n, K)` each, up to a factor."""

    before: np.ndarray
    leaving: np.ndarray
    after: np.ndarray
    entering: np.ndarray

    def ends(self) -> Edges:
        """Those of the first and of the last chunk."""
        return Edges(*(each[[0, -1]] for each in self))

    def joined(self, following: Edges) -> Edges:
        """Those of the last chunk, and of the first of those that follow."""
        return Edges(*(np.stack([one[-1], other[0]]) for one, other in zip(self, following, strict=True)))


class Found(NamedTuple):
    """A block whose chunks agree among themselves: its sums, its outermost edges, and the probabilities of its states
    `(rows, K)` float32, or None where they are not wanted."""

    totals: Totals
    edges: Edges
    probabilities: np.ndarray | None


def fused_blocks(how: How, model: HMM, sequences: Sequences) -> Callable[[tuple[int, int, int]], Found | None]:
    """Blocks of chunks `[begin, stop)`, guessed from `reach` rows; None where they do not agree, or without kernel."""
    if not native.available():
        return lambda asked: None
    return FusedBlocks(how, model, sequences).found


class FusedBlocks:
    """Everything that many blocks of chunks need."""

    def __init__(self, how: How, model: HMM, sequences: Sequences) -> None:
        self.how, self.model, self.sequences = how, model, sequences
        self.cells = Cells(sequences.offsets, how.chunk)
        self.calls = ChunkCalls(model, how.params, sequences, self.cells)
        self.reader, self.form, self.transition = self.calls.reader, self.calls.form, self.calls.transition

    def found(self, asked: tuple[int, int, int]) -> Found | None:
        """Chunks `[begin, stop)`, guessed from `reach` rows; None where they do not agree."""
        begin, stop, reach = asked
        totals, edges, gamma = self.run(begin, stop, reach)
        if not self.agree(edges, begin, stop):
            return None
        wanted = gamma if self.how.probabilities else None
        return Found(totals, edges.ends(), None if wanted is None else wanted.astype(np.float32))

    def rows_of(self, begin: int, stop: int) -> tuple[int, int]:
        """Rows that the chunks `[begin, stop)` own."""
        index = self.cells.locate([begin, stop - 1], 0)
        return int(index.start[0]), int(index.start[1] + index.length[1])

    def run(self, begin: int, stop: int, reach: int, measure: bool = True) -> tuple[Totals, Edges, np.ndarray | None]:
        """Chunks `[begin, stop)`: their sums, the messages at their edges, and posteriors where they are needed."""
        n = self.model.n_states
        chunks = self.calls.chunks(begin, stop, reach)
        first_row = chunks.first_row
        edges = Edges(*(np.zeros((chunks.size, n)) for _ in range(4)))
        log_likelihood, first = np.zeros(1), np.zeros(n)
        transitions, sums = np.zeros((n, n)), np.zeros((n, self.form.sums))
        given = self.form.kind == native.GIVEN
        collects = given and self.how.collect is not collect_nothing
        wanted = measure and (self.how.probabilities or collects)
        gamma = np.zeros((chunks.stop - chunks.start, n)) if wanted else None
        call = native.run(
            **chunks.arguments,
            log_likelihood=log_likelihood,
            first=first,
            transitions=transitions,
            statistics=sums,
            gamma=gamma,
            gamma_origin=chunks.start - first_row,
            edge_before=edges.before,
            edge_leaving=edges.leaving,
            edge_after=edges.after,
            edge_entering=edges.entering,
            forward_only=int(self.how.forward_only),
        )
        if call.impossible >= 0:
            raise ImpossibleObservationError(
                f"No reachable state can have produced {self.sequences.describe(first_row + call.impossible)}: its "
                "likelihood is zero under the parameters; mark it as missing (NaN), or use an emission or transitions "
                "that allow it."
            )
        collected = None
        if collects and gamma is not None:
            collected = self.reader.collect(self.how.collect, chunks.start, gamma)
        if measure and not self.sequences.in_memory:
            own = slice(chunks.start - first_row, chunks.stop - first_row)
            log_likelihood += self.reader.base_measure_of(own)
        totals = Totals(log_likelihood[0], first, transitions, None if given else sums, collected)
        return totals, edges, gamma

    def agree(self, edges: Edges, begin: int, stop: int) -> bool:
        """Whether neighbouring chunks of one sequence met with the same messages."""
        starts = self.cells.locate(np.arange(begin, stop), 0).at_start
        joints = ~np.asarray(starts, bool)[1:]
        leaving, after, before, entering = edges.leaving[:-1], edges.after[:-1], edges.before[1:], edges.entering[1:]
        if not joints.all():
            leaving, after, before, entering = (each[joints] for each in (leaving, after, before, entering))
        # One step on, what is too small to matter is gone.
        if not _same(leaving @ self.transition, before @ self.transition):
            return False
        if self.how.forward_only:
            return True
        if np.array_equal(after, entering):
            return True
        one, other = leaving * after, leaving * entering
        with np.errstate(invalid="ignore", divide="ignore"):
            one, other = one / one.sum(1, keepdims=True), other / other.sum(1, keepdims=True)
        return bool(np.all(0.5 * np.abs(one - other).sum(1) <= TOLERANCE + ROUNDING))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether rows agree up to a factor each: log odds within the tolerance, zeros in the same places."""
    if np.all(np.abs(one - other) <= 0.5 * TOLERANCE * np.minimum(one, other)):
        return True  # as almost always: the kernel's messages sum to one
    if not np.array_equal(one > 0, other > 0):
        return False
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(one / one.max(1, keepdims=True))
        gap = np.abs(logs - np.log(other / other.max(1, keepdims=True)))
    possible = one > 0
    return bool(np.all(gap[possible] <= TOLERANCE + ROUNDING * (1 + np.abs(logs[possible]))))
