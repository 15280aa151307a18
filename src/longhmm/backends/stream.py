"""Exact passes over data of any length, block by block: bounded memory, wherever the executor of the data runs them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends import stitch
from longhmm.backends.block import Asked, Blocks, Collector, How, Outcome, Own, Reducer
from longhmm.backends.pallas.full import ALONE, Fused, gpu_totals
from longhmm.backends.protocol import FAINTEST, Boundary
from longhmm.backends.read import chunk_length
from longhmm.backends.stitch import OVERLAPS
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError, check_whole
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold

Progress = Callable[[int], None]
EVERYTHING = Asked()
PROBE = 64  # chunks with which an overlap is tried first, where they are few of all; a part of the data has as many
MANY, SOME = 8, 4  # times as many, from which on all overlaps are tried, and all but the first, which mostly does
# Of the tolerance: some chunk of all disagrees far more than any of a few, and all would be run again.
CLEARLY, OF_SOME = 1e-4, 0.05
MOST_KEPT = 1 << 24  # numbers in transfer operators; where there are more, they are computed a second time


class Totals(NamedTuple):
    """Sums over all data: `log p(y)`, expected first states and transitions, those of the emission's lowering if it has
    one, else derivatives by its free natural parameters, and of what the collector returned."""

    log_likelihood: float
    first: np.ndarray
    transitions: np.ndarray
    sums: np.ndarray | None
    natural: dict[str, np.ndarray] | None = None
    collected: Any = None


def totals(
    model: HMM,
    params: Mapping[str, np.ndarray],
    sequences: Sequences,
    collect: Collector | None = None,
    *,
    forward_only: bool = False,
    progress: Progress | None = None,
    fused: Fused = ALONE,
) -> Any:
    """Sums over all data at checked parameters, in float64, exact to rounding, or what `fused` finds."""
    outer, (memory, model, params) = model, unfold(model, params)
    if not (collect or forward_only):
        own = fused if model is outer else Fused(check=fused.check)
        on_gpu = gpu_totals(model, params, sequences, progress, own)
        if on_gpu is not None:
            return on_gpu if own.then is not ALONE.then else memory.folded(Totals(*on_gpu[0]))
    fused.check()
    blocks = Blocks(How(params, collect, forward_only=forward_only), model, sequences)
    parts = [
        (*outcome.found[:3], outcome.found.sums, outcome.natural, outcome.own.collected)
        for outcome in Stream(blocks, progress=progress).outcomes()
    ]
    likelihood, *total = parts[0] if len(parts) == 1 else jax.tree.map(lambda *each: np.sum(each, axis=0), *parts)
    found = memory.folded(Totals(float(likelihood) + blocks.reader.log_base_measure(), *total))
    return found if blocks.reader.lowering is not None else found._replace(sums=None)


def stream(
    model: HMM,
    params: Mapping[str, np.ndarray],
    sequences: Sequences,
    collect: Collector | None = None,
    *,
    reduce: Reducer | None = None,
    forward_only: bool = False,
) -> Iterator[Any]:
    """The blocks of all data in order: for each what `reduce` makes of its `Own` rows, or these as they are. Their
    probabilities are `P(x_t = k | all y)`, or given y up to t with `forward_only`."""
    memory, model, params = unfold(model, params)
    reducer = None if reduce is None else partial(_folded, memory, reduce)  # near the data, where it makes them small
    how = How(params, collect, reducer, forward_only=forward_only, probabilities=True)
    owns = map(lambda outcome: outcome.own, Stream(Blocks(how, model, sequences)).outcomes())
    return map(memory.folded, owns) if reduce is None else owns


def _folded(memory: Any, reduce: Reducer, own: Own) -> Any:
    return reduce(memory.folded(own))


class Stream:
    """One pass over all blocks, each asked for the same; `begin` is the first that has not gone out."""

    def __init__(self, blocks: Blocks, asked: Asked = EVERYTHING, progress: Progress | None = None) -> None:
        self.blocks, self.asked, self.progress = blocks, asked, progress
        self.best = asked.paths is not None and not asked.paths.drawn
        self.tolerance = stitch.SCORE_TOLERANCE if self.best else stitch.TOLERANCE
        self.begin = 0
        self._before: Outcome | None = None

    def outcomes(self) -> Iterator[Outcome]:
        """Blocks in order, each exact before it goes out: its chunks agree with one another and with the block before,
        or, from the first on where none of the overlaps suffices, messages are propagated."""
        for overlap in OVERLAPS:
            if self._probe(overlap):
                asked = (self.asked._replace(block=i, overlap=overlap) for i in range(self.begin, self.blocks.n_blocks))
                for outcome in self.blocks.each(asked):
                    self._refuse_impossible(outcome)
                    if not self._gap(outcome) <= self.tolerance:
                        break
                    yield self._out(outcome)
                    del outcome  # the memory of its rows serves the next block
            if self.begin == self.blocks.n_blocks:
                return
            if overlap >= np.diff(self.blocks.sequences.offsets).max():
                break
        yield from self._propagated()

    def _propagated(self) -> Iterator[Outcome]:
        """The rest of the pass with messages propagated by transfer operators: always exact."""
        n, indices = self.blocks.model.n_states, range(self.begin, self.blocks.n_blocks)
        propagate = partial(_on_host, stitch.propagate, best=self.best)
        carry, first, before = np.full(n, -np.log(n)), 0, self._before
        if before is not None and np.min(before.forward_out) > FAINTEST + 1:
            carry, first = before.forward_out, self.begin  # otherwise it is exact for what came before only
        forward: dict[int, np.ndarray] = {}
        backward: dict[int, np.ndarray | None] = dict.fromkeys(indices)
        keep = len(indices) * self.blocks.how.per_block * n**2 <= MOST_KEPT
        kept: dict[int, np.ndarray] = {}
        for index, operators in self._operators(range(first, self.blocks.n_blocks)):
            forward[index], carry = propagate(carry, operators, np.zeros(len(operators), bool))
            if keep and index >= self.begin:
                kept[index] = operators
        if not self.blocks.how.forward_only:
            carry = np.zeros(n)
            found = ((i, kept.pop(i)) for i in reversed(indices)) if keep else self._operators(reversed(indices))
            for index, operators in found:
                backward[index], carry = stitch.propagate_backward(carry, operators, self._ends(index), propagate)
        boundaries = ((i, Boundary(forward.pop(i), backward.pop(i))) for i in indices)
        for outcome in self.blocks.each(self.asked._replace(block=i, boundary=each) for i, each in boundaries):
            self._refuse_impossible(outcome)
            yield self._out(outcome)
            del outcome

    def _probe(self, overlap: int) -> bool:
        """Whether the first chunks clearly agree, which is cheap to find out where they are a small part of all."""
        how, data, n_times = self.blocks.how, self.blocks.sequences, self.blocks.partition.n_blocks / PROBE
        if self.asked.paths is not None or n_times <= (SOME if overlap > OVERLAPS[0] else MANY):
            return True
        # Short ones, where sequences are so long that the chunks of the pass have neighbours.
        chunk = min(how.chunk, PROBE if data.length > data.n_sequences * how.chunk else how.chunk)
        small = How(how.params, forward_only=how.forward_only, per_chunk=how.per_chunk, chunk=chunk, per_block=PROBE)
        blocks = Blocks(small, self.blocks.model, data)
        first = self.begin * blocks.n_blocks // self.blocks.n_blocks
        share = CLEARLY if n_times > MANY else OF_SOME
        share = share if overlap < OVERLAPS[-1] else 1.0  # behind the longest there are only operators
        return bool(blocks.run(Asked(first, overlap, inner=True)).gap <= share * self.tolerance)

    def _gap(self, outcome: Outcome) -> float:
        """How far the chunks of a block disagree with one another and with the block before."""
        if self._before is None or not self.blocks.joined(self.begin)[0]:
            return outcome.gap
        return max(outcome.gap, stitch.block_gap(outcome.step, self._before.forward_out, outcome.forward_in, self.best))

    def _refuse_impossible(self, outcome: Outcome) -> None:
        if outcome.impossible >= 0:
            raise ImpossibleObservationError(
                f"No reachable state can have produced {self.blocks.sequences.describe(outcome.impossible)}: its "
                "likelihood is zero under the parameters; mark it as missing (NaN), or use an emission or transitions "
                "that allow it."
            )

    def _out(self, outcome: Outcome) -> Outcome:
        if self.progress is not None:
            start, stop = self.blocks.bounds(self.begin)
            self.progress(stop - start)
        self.begin, self._before = self.begin + 1, outcome._replace(own=None)
        return outcome

    def _ends(self, index: int) -> np.ndarray:
        """`(W,)`, whether each chunk of a block ends its sequence."""
        joined = self.blocks.joined(index)
        onward = index + 1 < self.blocks.n_blocks and bool(self.blocks.joined(index + 1)[0])
        return ~np.append(joined[1:], onward)

    def _operators(self, indices: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        asked = list(indices)
        found = self.blocks.each(self.asked._replace(block=index, operators=True) for index in asked)
        return zip(asked, found, strict=True)


def _on_host(run: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, run(*arguments, **options))


class Stretches:
    """Log likelihoods of up to `count` stretches of about equal length, each given all rows before it.

    Attributes:
        seen: rows in which something was observed, known after the first log likelihoods.
    """

    def __init__(self, model: HMM, sequences: Sequences, count: int) -> None:
        check_whole("blocks", count, 1)
        self.model, self.sequences = model, sequences
        self.edges = np.linspace(0, sequences.length, min(count, sequences.length) + 1).astype(np.int64)
        length = sequences.length / count
        # A stretch has a whole number of chunks, about.
        self.chunk = max(1, int(length / np.ceil(length / chunk_length(sequences))))
        self.seen = sequences.length
        self._base: np.ndarray | None = None

    def log_likelihoods(self, params: Mapping[str, np.ndarray]) -> np.ndarray:
        """`(B,)`, `log p(rows of the stretch | all rows before)`; stretches are cut where chunks are."""
        _, model, inner = unfold(self.model, params)
        blocks = Blocks(How(inner, forward_only=True, chunk=self.chunk, per_chunk=True), model, self.sequences)
        outcomes = enumerate(Stream(blocks).outcomes())
        found = [each.found.log_likelihood[: len(blocks.chunks(index))] for index, each in outcomes]  # the rest pads
        begins = blocks.partition.locate(np.arange(blocks.partition.n_blocks), 0).begin
        if self._base is None:
            self._base = self._row_sums(params, begins, blocks.reader.lowering is not None)
        return self._base + np.bincount(self._stretch(begins), np.concatenate(found), minlength=len(self.edges) - 1)

    def _stretch(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.edges, rows, side="right") - 1

    def _row_sums(self, params: Mapping[str, np.ndarray], begins: np.ndarray, lowered: bool) -> np.ndarray:
        """`(B,)`, what a lowering leaves out of log likelihoods; rows that were observed are counted on the way."""
        lowering, total = self.model.emission.lowering, np.zeros(len(self.edges) - 1)
        has_base = lowered and lowering is not None and lowering.has_base_measure
        if self.sequences.complete and not has_base:
            return total
        sums = partial(_sums, self._stretch(begins), begins)
        parts = stream(self.model, params, self.sequences, _row_facts, reduce=sums, forward_only=True)
        self.seen = 0
        for first, base, seen in parts:
            total[first : first + len(base)] += base if has_base else 0.0
            self.seen += seen
        return total


def _sums(stretch: np.ndarray, begins: np.ndarray, own: Own) -> tuple[int, np.ndarray, int]:
    """Of one block: its first stretch, sums of base measures there and in those that follow, and rows observed."""
    seen, base = own.collected
    which = stretch[np.searchsorted(begins, np.arange(own.start, own.stop), side="right") - 1]
    return int(which[0]), np.bincount(which - which[0], base), int(seen.sum())


def _row_facts(model: HMM, params: Any, rows: Rows, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether anything was observed, and what a lowering leaves out."""
    base, lowering = jnp.zeros(len(rows.values)), model.emission.lowering
    if lowering is not None and lowering.has_base_measure:
        base = jax.vmap(lowering.log_base_measure)(rows.values, rows.observed)
    return jnp.any(jnp.asarray(rows.observed), axis=1), base
