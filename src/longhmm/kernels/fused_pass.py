"""Exact passes over all data with the fused kernel: expected statistics in float64, streamed, proved.

Sequences are cut into chunks, which the kernel runs side by side. What comes into a chunk from its neighbours is found
by starting `reach` rows before it and ending as many behind it, and proved afterwards: the messages that leave a chunk
must be the ones with which the next one began (see `proofs`). Nothing goes out before every joint of all data agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells
from longhmm.errors import ImpossibleObservationError
from longhmm.kernels import native
from longhmm.kernels.forms import Form, packs
from longhmm.kernels.full_pass import Collector, Progress, collect_nothing
from longhmm.kernels.proofs import ROUNDING, TOLERANCE
from longhmm.kernels.rows import COPIED_ROWS, Reader
from longhmm.messages.markov import stationary_law
from longhmm.model.hmm import HMM

CHUNK = 512  # rows of a chunk: its messages stay in the second cache
LEAST_CHUNK = 64
REACHES = (32, 128, 512)
PROBE = 16  # chunks with which a reach is tried before all data are run, where that is a small part of them
UNIFORM_SHARE = 1e-3  # of the guess before a chunk: no state is taken to be impossible


class Totals(NamedTuple):
    """Sums over all data.

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


class _Edges(NamedTuple):
    """Messages at both edges of chunks, `(n, K)` each, up to a factor."""

    before: np.ndarray
    leaving: np.ndarray
    after: np.ndarray
    entering: np.ndarray


def fused_totals(
    model: HMM,
    params: Mapping[str, np.ndarray],
    sequences: Sequences,
    collect: Collector = collect_nothing,
    *,
    forward_only: bool = False,
    progress: Progress | None = None,
) -> Totals | None:
    """Sums over all data at checked parameters, or None where the kernel cannot give them.

    It cannot where it was not built, and where chunks do not forget what came before them within the longest reach.
    `collect` is for emissions without a form of their own, and for rows that are observed in part.
    """
    if not native.available():
        return None
    return _first_proved(_FusedPass(model, params, sequences, collect, forward_only), progress)


def fused_probabilities(
    model: HMM, params: Mapping[str, np.ndarray], sequences: Sequences, *, causal: bool
) -> np.ndarray | None:
    """`P(x_t = k | all y)`, or given `y` up to t, `(T, K)` float32; None as for `fused_totals`."""
    if not native.available():
        return None
    out = np.empty((sequences.length, model.n_states), np.float32)
    run = _FusedPass(model, params, sequences, collect_nothing, causal, out)
    return None if _first_proved(run, None) is None else out


def _first_proved(run: _FusedPass, progress: Progress | None) -> Totals | None:
    for reach in REACHES:
        if run.probe(reach):
            found = run.totals(reach, progress)
            if found is not None:
                return found
        if reach >= run.longest:
            break
    return None


class _FusedPass:
    def __init__(
        self,
        model: HMM,
        params: Mapping[str, np.ndarray],
        sequences: Sequences,
        collect: Collector,
        forward_only: bool,
        probabilities: np.ndarray | None = None,
    ) -> None:
        self.model, self.sequences, self.collect, self.forward_only = model, sequences, collect, forward_only
        self.probabilities = probabilities
        self.params = params
        self.reader = Reader(model, sequences, params)
        self.form: Form = self.reader.form
        self.longest = int(np.diff(sequences.offsets).max())
        self.cells = Cells(sequences.offsets, _chunk_length(sequences))
        with jax.enable_x64(True):
            arrays = {name: jnp.asarray(value, jnp.float64) for name, value in params.items()}
            self.transition = np.ascontiguousarray(params["transition"], np.float64)
            self.initial = np.ascontiguousarray(params["initial"], np.float64)
            law = stationary_law(self.transition)
            self.start = (1 - UNIFORM_SHARE) * law + UNIFORM_SHARE / len(law)
            empty = np.zeros((model.n_states, 0))
            given = self.form.kind == native.GIVEN
            self.packs = empty if given else np.ascontiguousarray(np.asarray(_packs(model, arrays)))

    def probe(self, reach: int) -> bool:
        """Whether the first chunks agree, which is cheap to find out."""
        if self.cells.n_cells <= 64 * PROBE:
            return True
        _, edges = self._run(0, PROBE, reach, measure=False)
        return self._agree(edges, 0, PROBE)

    def totals(self, reach: int, progress: Progress | None) -> Totals | None:
        """All data, or None where a joint does not agree."""
        parts: list[Totals] = []
        last: _Edges | None = None
        for begin, stop in self._blocks():
            found, edges = self._run(begin, stop, reach)
            joined = (
                edges if last is None else _Edges(*(np.concatenate(pair) for pair in zip(last, edges, strict=True)))
            )
            if not self._agree(joined, begin - (last is not None), stop):
                return None
            last = _Edges(*(each[-1:] for each in edges))
            parts.append(found)
            if progress is not None:
                progress(int(self._rows_end(stop - 1) - self._rows_begin(begin)))
        total = jax.tree.map(lambda *each: np.sum(np.stack(each), axis=0), *parts)
        return total._replace(log_likelihood=float(total.log_likelihood) + self.reader.log_base_measure())

    def _blocks(self) -> Iterator[tuple[int, int]]:
        rows = self.reader.block_rows if self.probabilities is None else COPIED_ROWS
        per_block = max(1, rows // self.cells.core_length)
        for begin in range(0, self.cells.n_cells, per_block):
            yield begin, min(begin + per_block, self.cells.n_cells)

    def _rows_begin(self, cell: int) -> int:
        index = self.cells.locate([cell], 0)
        return int(index.start[0])

    def _rows_end(self, cell: int) -> int:
        index = self.cells.locate([cell], 0)
        return int(index.start[0] + index.length[0])

    def _run(self, begin: int, stop: int, reach: int, measure: bool = True) -> tuple[Totals, _Edges]:
        """Chunks `[begin, stop)`: their sums, and the messages at their edges."""
        n = self.model.n_states
        index = self.cells.locate(np.arange(begin, stop), reach)
        count = stop - begin
        first_row, last_row = int(index.start[0]), int(index.start[-1] + index.length[-1])
        rows = self.reader.read(first_row, last_row)
        core_begin = index.start + index.core_start
        core = (index.core_stop - index.core_start).astype(np.int32)
        left, right = index.core_start.astype(np.int32), (index.length - index.core_stop).astype(np.int32)
        edges = _Edges(*(np.zeros((count, n)) for _ in range(4)))
        log_likelihood, first = np.zeros(1), np.zeros(n)
        transitions, sums = np.zeros((n, n)), np.zeros((n, self.form.sums))
        given = self.form.kind == native.GIVEN
        origin = int(core_begin[0])
        wanted = measure and (self.probabilities is not None or (given and self.collect is not collect_nothing))
        gamma = np.zeros((int(core_begin[-1] + core[-1]) - origin, n)) if wanted else None
        call = native.run(
            rows=rows,
            wide_rows=int(rows.dtype == np.float64),
            width=self.form.width,
            kind=self.form.kind,
            pack=self.form.pack,
            left=left,
            core=core,
            right=right,
            at_start=np.ascontiguousarray(index.at_start, np.int32),
            begin=np.ascontiguousarray(core_begin - first_row),
            windows=count,
            chains=1,
            points=1,
            max_left=int(left.max()),
            max_core=int(core.max()),
            max_right=int(right.max()),
            states=n,
            transition=self.transition,
            initial=self.initial,
            start=self.start,
            packs=self.packs,
            log_likelihood=log_likelihood,
            first=first,
            transitions=transitions,
            statistics=sums,
            gamma=gamma,
            gamma_origin=origin - first_row,
            edge_before=edges.before,
            edge_leaving=edges.leaving,
            edge_after=edges.after,
            edge_entering=edges.entering,
            forward_only=int(self.forward_only),
            threads=native.threads(),
        )
        if call.impossible >= 0:
            raise ImpossibleObservationError(
                f"No reachable state can have produced {self.sequences.describe(first_row + call.impossible)}: its "
                "likelihood is zero under the parameters; mark it as missing (NaN), or use an emission or transitions "
                "that allow it."
            )
        collected = None
        if self.probabilities is not None and gamma is not None:
            self.probabilities[origin : origin + len(gamma)] = gamma
        elif gamma is not None:
            collected = self.reader.collect(self.collect, origin, gamma)
        return Totals(log_likelihood[0], first, transitions, None if given else sums, collected), edges

    def _agree(self, edges: _Edges, begin: int, stop: int) -> bool:
        """Whether neighbouring chunks of one sequence met with the same messages."""
        starts = self.cells.locate(np.arange(begin, stop), 0).at_start
        joints = ~np.asarray(starts, bool)[1:]
        leaving, after = edges.leaving[:-1][joints], edges.after[:-1][joints]
        before, entering = edges.before[1:][joints], edges.entering[1:][joints]
        # One step on, what is too small to matter is gone.
        if not _same(leaving @ self.transition, before @ self.transition):
            return False
        if self.forward_only:
            return True
        one, other = leaving * after, leaving * entering
        with np.errstate(invalid="ignore", divide="ignore"):
            one, other = one / one.sum(1, keepdims=True), other / other.sum(1, keepdims=True)
        return bool(np.all(0.5 * np.abs(one - other).sum(1) <= TOLERANCE + ROUNDING))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether rows agree up to a factor each: log odds within the tolerance, zeros in the same places."""
    if not np.array_equal(one > 0, other > 0):
        return False
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(one / one.max(1, keepdims=True))
        gap = np.abs(logs - np.log(other / other.max(1, keepdims=True)))
    possible = one > 0
    return bool(np.all(gap[possible] <= TOLERANCE + ROUNDING * (1 + np.abs(logs[possible]))))


def _chunk_length(sequences: Sequences) -> int:
    """Long enough that the reach costs little, short enough that every lane of every thread has a chunk."""
    lanes = 8 * native.threads()
    return int(np.clip(sequences.length // lanes, LEAST_CHUNK, CHUNK))


_packs = jax.jit(packs, static_argnums=0)
