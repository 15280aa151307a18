"""What finding a path does with one block of rows, by the C++ kernel; `path_blocks` has the same in JAX.

Chunks lie side by side in vector lanes, threads take groups of them, and rows become likelihoods on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from longhmm.kernels import native
from longhmm.kernels.blocks import Plan
from longhmm.kernels.chunk_calls import ChunkCalls, Chunks
from longhmm.model.hmm import HMM


def serves(model: HMM) -> bool:
    """Whether the kernel can find paths for a model."""
    return native.available() and model.n_states <= native.MOST_STATES


class FusedPaths:
    """Work on the blocks of a plan at checked parameters.

    Args:
        drawn: paths are drawn from their posterior with the random numbers of `key` (two words); otherwise the best.
        logarithms: draw on logarithms throughout, where plain numbers have turned out to underflow.
    """

    def __init__(
        self,
        model: HMM,
        params: dict[str, np.ndarray],
        plan: Plan,
        *,
        drawn: bool,
        logarithms: bool = False,
        key: np.ndarray | None = None,
    ) -> None:
        self.model, self.plan, self.drawn, self.logarithms = model, plan, drawn, logarithms
        self.key = np.zeros(2, np.uint32) if key is None else key
        self.calls = ChunkCalls(model, params, plan.sequences, plan.cells)

    def messages(self, index: int, reach: int) -> tuple[np.ndarray, np.ndarray]:
        """Log messages before every chunk of a block, from `reach` rows to its left, and at its end; `(K, W)` each."""
        chunks = self._chunks(index, reach)
        before, leaving = (np.zeros((chunks.size, self.model.n_states)) for _ in range(2))
        self._run(chunks, before=before, leaving=leaving)
        return self._lanes(before), self._lanes(leaving)

    def maps(self, index: int, before: np.ndarray) -> tuple[np.ndarray, bool]:
        """First state of every chunk for each state that may follow it, `(K + 1, W)`, -1 where no path leads there;
        and whether plain numbers underflowed. The last row: nothing follows."""
        chunks = self._chunks(index, 0)
        maps = np.zeros((chunks.size, self.model.n_states + 1), np.uint8)
        done = self._run(chunks, log_before=_rows(before, chunks.size), maps=maps)
        return self._lanes(_states(maps)), done.careful > 0

    def fill(self, index: int, before: np.ndarray, following: np.ndarray) -> np.ndarray:
        """States of the rows of a block, given the state that follows each chunk; -1 where there is no path."""
        chunks = self._chunks(index, 0)
        states = np.zeros(chunks.stop - chunks.start, np.uint8)
        given = {"log_before": _rows(before, chunks.size)}
        given["following"] = np.ascontiguousarray(following[: chunks.size], np.int32)
        self._run(chunks, **given, states=states, origin=chunks.start - chunks.first_row)
        return _states(states).astype(np.int8 if self.model.n_states <= 127 else np.int16)

    def _chunks(self, index: int, reach: int) -> Chunks:
        begin = index * self.plan.lanes
        return self.calls.chunks(begin, min(begin + self.plan.lanes, self.plan.cells.n_cells), reach, behind=False)

    def _run(self, chunks: Chunks, **arguments: Any) -> native.Paths:
        flags = {"drawn": int(self.drawn), "logarithms": int(self.logarithms)}
        return native.find_paths(chunks.arguments, self.key, row_number=chunks.first_row, **flags, **arguments)

    def _lanes(self, found: np.ndarray) -> np.ndarray:
        """Chunks last, and as many of them as a full block has."""
        return np.pad(found.T, ((0, 0), (0, self.plan.lanes - len(found))))


def _rows(before: np.ndarray, count: int) -> np.ndarray:
    return np.ascontiguousarray(before[:, :count].T, np.float64)


def _states(found: np.ndarray) -> np.ndarray:
    return np.where(found == native.NO_STATE, -1, found.astype(np.int16))
