"""Log likelihoods of stretches of the data, each given all rows before it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.block import Own
from longhmm.backends.stream import Stream, chunk_length, stream
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM


class Stretches:
    """Up to `count` stretches of about equal length, for any number of parameters.

    Attributes:
        seen: rows in which something was observed, known after the first log likelihoods.
    """

    def __init__(self, model: HMM, sequences: Sequences, count: int) -> None:
        if count < 1:
            raise ModelError(f"blocks must be at least 1, got {count!r}.")
        self.model, self.sequences = model, sequences
        self.edges = np.linspace(0, sequences.length, min(count, sequences.length) + 1).astype(np.int64)
        length = sequences.length / count
        # A stretch has a whole number of chunks, about.
        self.chunk = max(1, int(length / np.ceil(length / chunk_length(sequences))))
        self.seen = sequences.length
        self._base: np.ndarray | None = None

    def log_likelihoods(self, params: Mapping[str, np.ndarray]) -> np.ndarray:
        """`(B,)`, `log p(rows of the stretch | all rows before)`; stretches are cut where chunks are."""
        run = Stream(self.model, params, self.sequences, forward_only=True, chunk=self.chunk, per_chunk=True)
        blocks, found = run.blocks, []
        for index, outcome in enumerate(run.outcomes()):
            own = min(run.how.per_block, blocks.partition.n_blocks - index * run.how.per_block)  # the rest is padding
            found.append(outcome.statistics.log_likelihood[:own])
        begins = blocks.partition.locate(np.arange(blocks.partition.n_blocks), 0).begin
        if self._base is None:
            self._base = self._row_sums(params, begins, blocks.reader.lowering is not None)
        return self._base + np.bincount(self._stretch(begins), np.concatenate(found), minlength=len(self.edges) - 1)

    def _stretch(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.edges, rows, side="right") - 1

    def _row_sums(self, params: Mapping[str, np.ndarray], begins: np.ndarray, lowered: bool) -> np.ndarray:
        """`(B,)`, what a lowering leaves out of log likelihoods; rows that were observed are counted on the way."""
        lowering = self.model.emission.lowering
        has_base = lowered and lowering is not None and lowering.has_base_measure
        total = np.zeros(len(self.edges) - 1)
        if self.sequences.complete and not has_base:
            return total
        collect = _base_of_rows if has_base else _seen_rows
        self.seen = 0
        sums = partial(_sums, self._stretch(begins), begins)
        for first, base, seen in stream(self.model, params, self.sequences, collect, reduce=sums, forward_only=True):
            total[first : first + len(base)] += base
            self.seen += seen
        return total


def _sums(stretch: np.ndarray, begins: np.ndarray, own: Own) -> tuple[int, np.ndarray, int]:
    """Of one block: its first stretch, sums of base measures there and in those that follow, and rows observed."""
    seen, base = own.collected
    which = stretch[np.searchsorted(begins, np.arange(own.start, own.stop), side="right") - 1]
    return int(which[0]), np.bincount(which - which[0], base), int(seen.sum())


def _seen_rows(model: HMM, params: Any, rows: Rows, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.any(jnp.asarray(rows.observed), axis=1), jnp.zeros(len(rows.values))


def _base_of_rows(model: HMM, params: Any, rows: Rows, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    lowering = model.emission.lowering
    assert lowering is not None
    return _seen_rows(model, params, rows, weights)[0], jax.vmap(lowering.log_base_measure)(rows.values, rows.observed)
