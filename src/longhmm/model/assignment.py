"""Which group of rows each state should start with, where the states are not all alike."""

from __future__ import annotations

import numpy as np

from longhmm.model.hmm import HMM

IMPOSSIBLE = -20.0  # log probability that stands for a forbidden transition: clusters are noisy, so not minus infinity


def assign(
    model: HMM,
    levels: np.ndarray,
    counts: np.ndarray,
    fit: np.ndarray,
    restart: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """`order[level]` = group, the order that suits the transitions and `fit[level, group]` best, by swapping pairs.

    Further restarts begin with a random order, since swaps may end in a local optimum.
    """
    n_groups = len(counts)
    order = np.arange(n_groups) if restart == 0 else rng.permutation(n_groups)
    best = _score(model, levels, counts, fit, order)
    improved = True
    while improved:
        improved = False
        for one in range(n_groups):
            for other in range(one + 1, n_groups):
                swapped = order.copy()
                swapped[[one, other]] = order[[other, one]]
                score = _score(model, levels, counts, fit, swapped)
                if score > best + 1e-9:
                    order, best, improved = swapped, score, True
    return order


def _score(model: HMM, levels: np.ndarray, counts: np.ndarray, fit: np.ndarray, order: np.ndarray) -> float:
    """Log probability of the counted transitions at the best transition matrix that the model allows."""
    placed = counts[np.ix_(order, order)]
    allowed = np.zeros_like(placed, dtype=bool)
    np.logical_or.at(allowed, (levels[:, None], levels[None, :]), model.transitions.allowed)
    share = np.where(allowed, placed + 0.5, 0.0)
    law = share / share.sum(axis=1, keepdims=True)
    for row, fixed in model.transitions.fixed_rows.items():
        law[levels[row]] = np.bincount(levels, weights=fixed, minlength=len(placed))
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(law), IMPOSSIBLE)
    return float(np.sum(placed * logs) + np.sum(fit[np.arange(len(order)), order]))
