"""Exact passes over data of any length, block by block: bounded memory, wherever the executor of the data runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.block import Asked, Blocks, Collector, How, Outcome, Reducer
from longhmm.backends.cpp import kernel_threads
from longhmm.backends.pallas.full import gpu_totals
from longhmm.backends.protocol import FAINTEST, Boundary
from longhmm.backends.read import COPIED_ROWS
from longhmm.backends.stitch import OVERLAPS, TOLERANCE, blocks_agree, one_step, propagate_backward, propagate_forward
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError
from longhmm.model.hmm import HMM

Progress = Callable[[int], None]
CHUNK, LEAST_CHUNK = 512, 64  # rows of a chunk: its messages stay in the second cache
PROBE = 16  # chunks with which an overlap is tried before all data are run, where that is a small part of them
MOST_KEPT = 1 << 24  # numbers in transfer operators; where there are more, they are computed a second time


class Totals(NamedTuple):
    """Sums over all data.

    Attributes:
        log_likelihood: `log p(y)`.
        first: `(K,)`, expected first states.
        transitions: `(K, K)`, expected transitions.
        sums: `(K, sums)`, expected sufficient statistics of the emission's lowering; None where it has none.
        natural: derivatives with respect to the emission's free natural parameters; empty where there are sums.
        collected: sum of what the collector returned.
    """

    log_likelihood: float
    first: np.ndarray
    transitions: np.ndarray
    sums: np.ndarray | None
    natural: dict[str, np.ndarray]
    collected: Any


def totals(
    model: HMM,
    params: Mapping[str, np.ndarray],
    sequences: Sequences,
    collect: Collector | None = None,
    *,
    forward_only: bool = False,
    progress: Progress | None = None,
) -> Totals:
    """Sums over all data at checked parameters, in float64, exact to rounding."""
    if collect is None and not forward_only:
        on_gpu = gpu_totals(model, params, sequences, progress)
        if on_gpu is not None:
            return Totals(*on_gpu, {}, None)
    run = Stream(model, params, sequences, collect, forward_only=forward_only, progress=progress)
    parts = []
    for outcome in run.outcomes():
        found = outcome.statistics
        parts.append((found.log_likelihood, found.first, found.transitions, found.sums, outcome.natural,
                      outcome.own.collected))  # fmt: skip
    total = jax.tree.map(lambda *each: np.sum(np.stack(each), axis=0), *parts)
    likelihood, first, transitions, sums, natural, collected = total
    has_sums = run.blocks.reader.lowering is not None
    base = run.blocks.reader.log_base_measure()
    return Totals(float(likelihood) + base, first, transitions, sums if has_sums else None, natural, collected)


def stream(
    model: HMM,
    params: Mapping[str, np.ndarray],
    sequences: Sequences,
    collect: Collector | None = None,
    *,
    reduce: Reducer | None = None,
    forward_only: bool = False,
    progress: Progress | None = None,
) -> Iterator[Any]:
    """The blocks of all data in order: for each what `reduce` makes of its `Own` rows, or these as they are.

    Their probabilities are `P(x_t = k | all y)`, or given y up to t with `forward_only`.
    """
    run = Stream(
        model, params, sequences, collect, reduce=reduce, forward_only=forward_only, probabilities=True,
        progress=progress,
    )  # fmt: skip
    return (outcome.own for outcome in run.outcomes())


class Stream:
    """One pass over all blocks at checked parameters."""

    def __init__(
        self,
        model: HMM,
        params: Mapping[str, np.ndarray],
        sequences: Sequences,
        collect: Collector | None = None,
        *,
        reduce: Reducer | None = None,
        forward_only: bool = False,
        probabilities: bool = False,
        progress: Progress | None = None,
        chunk: int | None = None,
        per_chunk: bool = False,
    ) -> None:
        self.model, self.sequences, self.progress = model, sequences, progress
        chunk = min(chunk_length(sequences), chunk or CHUNK)
        how = How(dict(params), forward_only, probabilities, collect, reduce, chunk, 1, per_chunk)
        rows = Blocks(how, model, sequences).reader.block_rows
        rows = min(rows, COPIED_ROWS) if probabilities or collect is not None else rows
        self.how = how._replace(per_block=max(1, rows // chunk))
        self.blocks = Blocks(self.how, model, sequences)

    def outcomes(self) -> Iterator[Outcome]:
        """Blocks in order, each exact before it goes out."""
        begin, before = 0, None
        longest = int(np.diff(self.sequences.offsets).max())
        for overlap in OVERLAPS:
            if self._probe(begin, overlap):
                for outcome in self.blocks.each(Asked(i, overlap) for i in self._from(begin)):
                    self._refuse_impossible(outcome)
                    if not outcome.gap <= TOLERANCE or not self._follows(begin, before, outcome):
                        break
                    yield self._out(outcome, begin)
                    before, begin = outcome, begin + 1
                if begin == self.blocks.n_blocks:
                    return
            if overlap >= longest:
                break
        yield from self._propagated(begin, before)

    def _from(self, begin: int) -> range:
        return range(begin, self.blocks.n_blocks)

    def _probe(self, begin: int, overlap: int) -> bool:
        """Whether the first chunks agree, which is cheap to find out."""
        if self.blocks.partition.n_blocks <= 64 * PROBE:
            return True
        small = Blocks(self.how._replace(per_block=PROBE, collect=None, reduce=None, probabilities=False),
                       self.model, self.sequences)  # fmt: skip
        first = min(begin * self.how.per_block // PROBE, small.n_blocks - 1)
        return small.run(Asked(first, overlap)).gap <= TOLERANCE

    def _follows(self, index: int, left: Outcome | None, right: Outcome) -> bool:
        """Whether a block goes on where the one before it ended."""
        if left is None or not self.blocks.joined(index)[0]:
            return True
        transition = one_step(self.model, jnp.asarray(self.how.params["transition"]))
        return blocks_agree(transition, left.forward_out, right.forward_in)

    def _refuse_impossible(self, outcome: Outcome) -> None:
        if outcome.impossible >= 0:
            raise ImpossibleObservationError(
                f"No reachable state can have produced {self.sequences.describe(outcome.impossible)}: its likelihood "
                "is zero under the parameters; mark it as missing (NaN), or use an emission or transitions that allow "
                "it."
            )

    def _out(self, outcome: Outcome, index: int) -> Outcome:
        if self.progress is not None:
            start, stop = self.blocks.bounds(index)
            self.progress(stop - start)
        return outcome

    def _propagated(self, begin: int, before: Outcome | None) -> Iterator[Outcome]:
        """The rest of the pass with messages propagated by transfer operators: always exact."""
        n, indices = self.model.n_states, self._from(begin)
        carry, first = np.full(n, -np.log(n)), 0
        if before is not None and np.min(before.forward_out) > FAINTEST + 1:
            carry, first = before.forward_out, begin  # otherwise it is exact for what came before only
        forward: dict[int, np.ndarray] = {}
        backward: dict[int, np.ndarray | None] = {index: None for index in indices}
        keep = len(indices) * self.how.per_block * n**2 <= MOST_KEPT
        kept: dict[int, np.ndarray] = {}
        for index, operators in self._operators(self._from(first)):
            forward[index], carry = _on_host(propagate_forward, carry, operators)
            if keep and index >= begin:
                kept[index] = operators
        if not self.how.forward_only:
            carry = np.zeros(n)
            found = ((i, kept.pop(i)) for i in reversed(indices)) if keep else self._operators(reversed(indices))
            for index, operators in found:
                ends = self._ends(index)
                backward[index], carry = _on_host(propagate_backward, carry, operators, ends)
        asked = (Asked(i, 0, Boundary(forward.pop(i), backward.pop(i))) for i in indices)
        for index, outcome in zip(indices, self.blocks.each(asked), strict=True):
            self._refuse_impossible(outcome)
            yield self._out(outcome, index)

    def _ends(self, index: int) -> np.ndarray:
        """`(W,)`, whether each chunk of a block ends its sequence."""
        joined = self.blocks.joined(index)
        onward = index + 1 < self.blocks.n_blocks and bool(self.blocks.joined(index + 1)[0])
        return ~np.append(joined[1:], onward)

    def _operators(self, indices: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        asked = list(indices)
        return zip(asked, self.blocks.each(Asked(index, operators=True) for index in asked), strict=True)


def chunk_length(sequences: Sequences) -> int:
    """Long enough that the overlap costs little, short enough that every lane of every thread has a chunk."""
    lanes = 8 * kernel_threads()
    return int(np.clip(sequences.length // lanes, LEAST_CHUNK, CHUNK))


def _on_host(run: Callable[..., Any], *arguments: Any) -> Any:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, run(*map(jnp.asarray, arguments)))
