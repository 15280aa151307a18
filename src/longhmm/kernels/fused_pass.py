"""Exact passes over all data with the fused kernel: expected statistics in float64, streamed, proved.

Sequences are cut into chunks, which the kernel runs side by side. What comes into a chunk from its neighbours is found
by starting `reach` rows before it and ending as many behind it, and proved afterwards: the messages that leave a chunk
must be the ones with which the next one began (see `proofs`). Nothing goes out before every joint of all data agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import repeat

import jax
import numpy as np

from longhmm.data.executor import Task, Work
from longhmm.data.sequences import Sequences
from longhmm.kernels import native
from longhmm.kernels.block_messages import Collector
from longhmm.kernels.full_pass import Progress, collect_nothing
from longhmm.kernels.fused_blocks import Edges, FusedBlocks, How, Totals, fused_blocks
from longhmm.kernels.rows import COPIED_ROWS
from longhmm.model.hmm import HMM

CHUNK = 512  # rows of a chunk: its messages stay in the second cache
LEAST_CHUNK = 64
REACHES = (32, 128, 512)
PROBE = 16  # chunks with which a reach is tried before all data are run, where that is a small part of them


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
        self.model, self.sequences, self.probabilities = model, sequences, probabilities
        self.longest = int(np.diff(sequences.offsets).max())
        self.how = How(dict(params), collect, forward_only, probabilities is not None, chunk_length(sequences))
        self.blocks = FusedBlocks(self.how, model, sequences)
        self.cells = self.blocks.cells

    def probe(self, reach: int) -> bool:
        """Whether the first chunks agree, which is cheap to find out."""
        if self.cells.n_cells <= 64 * PROBE:
            return True
        return self.blocks.agree(self.blocks.run(0, PROBE, reach, measure=False)[1], 0, PROBE)

    def totals(self, reach: int, progress: Progress | None) -> Totals | None:
        """All data, or None where a joint does not agree."""
        parts: list[Totals] = []
        last: Edges | None = None
        # Elsewhere it is all made anew; here it is at hand.
        here = self.sequences.executor.here
        work: Work = (lambda model, sequences: self.blocks.found) if here else partial(fused_blocks, self.how)
        found = self.sequences.executor.run(
            work, self.model, self.sequences, map(self._task, self._bounds(), repeat(reach))
        )
        for (begin, stop), each in zip(self._bounds(), found, strict=False):
            if each is None:
                return None
            if last is not None and not self.blocks.agree(last.joined(each.edges), begin - 1, begin + 1):
                return None
            last = each.edges
            parts.append(each.totals)
            start, end = self.blocks.rows_of(begin, stop)
            if self.probabilities is not None:
                self.probabilities[start:end] = each.probabilities
            if progress is not None:
                progress(end - start)
        total = jax.tree.map(lambda *each: np.sum(np.stack(each), axis=0), *parts)
        base = self.blocks.reader.log_base_measure() if self.sequences.in_memory else 0.0
        return total._replace(log_likelihood=float(total.log_likelihood) + base)

    def _task(self, bounds: tuple[int, int], reach: int) -> Task:
        start, stop = self.blocks.rows_of(*bounds)
        around = max(0, start - reach), min(stop + reach, self.sequences.length)
        return Task((*bounds, reach), *around, gives_rows=self.probabilities is not None)

    def _bounds(self) -> Iterator[tuple[int, int]]:
        rows = self.blocks.reader.block_rows if self.probabilities is None else COPIED_ROWS
        per_block = max(1, rows // self.cells.core_length)
        for begin in range(0, self.cells.n_cells, per_block):
            yield begin, min(begin + per_block, self.cells.n_cells)


def chunk_length(sequences: Sequences) -> int:
    """Long enough that the reach costs little, short enough that every lane of every thread has a chunk."""
    lanes = 8 * native.threads()
    return int(np.clip(sequences.length // lanes, LEAST_CHUNK, CHUNK))
