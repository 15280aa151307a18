"""Where covariates have rare values: how much rows say about coefficients, by their leverage (F28)."""

from __future__ import annotations

import numpy as np

from longhmm.data.executor import ahead
from longhmm.data.layout import Partition
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM

ROWS = 1 << 18  # read together
SMALLEST = 1e-9  # share of its variance in which a column may differ from combinations of others


def columns_of(model: HMM) -> list[int]:
    """Columns of which something is a linear combination, or that transitions follow in another way."""
    moves = model.transitions
    own = moves.own if moves.varies else ()
    followed = [each.linear.own for each in model.emission.regressions.values() if each.weighs]
    return sorted({column for each in (own, *followed) for column in each})


def group_leverage(model: HMM, sequences: Sequences, groups: Partition) -> np.ndarray | None:
    """`(G,)`, sums over the rows of each group of `(x - m)' S^-1 (x - m)`, with m the mean of covariates and S their
    scatter about it, so that all groups together have as many as there are columns; None where there are none."""
    columns = columns_of(model)
    if not columns:
        return None
    source, count = sequences.parts["covariates"], -(-sequences.length // ROWS)

    def read(index: int) -> np.ndarray:
        stop = min((index + 1) * ROWS, sequences.length)
        return np.asarray(source.read(index * ROWS, stop)[:, columns], np.float64)

    first = read(0)[0]  # counted from which sums leave more digits
    sums, squares = np.zeros(len(columns)), np.zeros((len(columns), len(columns)))
    for part in ahead(read, count):
        sums, squares = sums + (part - first).sum(axis=0), squares + (part - first).T @ (part - first)
    mean = sums / sequences.length
    whitened = _inverse_root(squares - np.outer(sums, mean))
    begins, found = groups.locate(np.arange(groups.n_blocks), 0).begin, np.zeros(groups.n_blocks)
    for index, part in enumerate(ahead(read, count)):
        rows = np.sum(((part - first - mean) @ whitened) ** 2, axis=1)
        group = np.searchsorted(begins, np.arange(index * ROWS, index * ROWS + len(rows)), side="right") - 1
        found[group[0] : group[-1] + 1] += np.bincount(group - group[0], rows)
    return found


def _inverse_root(scatter: np.ndarray) -> np.ndarray:
    """W with `W W' = S^-1`, of the columns that are not combinations of others."""
    scale = np.sqrt(np.diag(scatter))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(scatter / scale[:, None] / scale)
    kept = values > SMALLEST
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]) / scale[:, None])
