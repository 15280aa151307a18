"""A short run of k-means, from which the paper's chains start: distant seeds, many restarts, the tightest one kept."""

from __future__ import annotations

import numpy as np

RESTARTS, ROUNDS = 40, 15


def k_means_start(rows: np.ndarray, n_groups: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Means `(K, D)` and covariances `(K, D, D)` of the groups of `rows`."""
    rows = np.asarray(rows, np.float64)
    best, least = None, np.inf
    for _ in range(RESTARTS):
        centres = _spread_seeds(rows, n_groups, rng)
        for _ in range(ROUNDS):
            distances = _squared_distances(rows, centres)
            labels = distances.argmin(axis=1)
            counts = np.bincount(labels, minlength=n_groups)
            sums = np.stack([np.bincount(labels, column, minlength=n_groups) for column in rows.T], axis=1)
            centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        distances = _squared_distances(rows, centres)
        total = float(distances.min(axis=1).sum())
        if total < least:
            best, least = (centres, distances.argmin(axis=1)), total
    assert best is not None
    centres, labels = best
    # An empty or flat group gets a little of the spread of all rows.
    floor = 1e-3 * np.diag(rows.var(axis=0))
    covariances = []
    for group, centre in enumerate(centres):
        away = rows[labels == group] - centre
        covariances.append(away.T @ away / max(len(away), 1) + floor)
    return {"mean": centres, "covariance": np.stack(covariances)}


def _spread_seeds(rows: np.ndarray, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Rows drawn one after the other, with a chance that grows with the squared distance from those drawn before."""
    chosen = [rows[rng.integers(len(rows))]]
    distances = np.full(len(rows), np.inf)
    for _ in range(n_groups - 1):
        distances = np.minimum(distances, np.sum((rows - chosen[-1]) ** 2, axis=1))
        chosen.append(rows[rng.choice(len(rows), p=distances / distances.sum())])
    return np.stack(chosen)


def _squared_distances(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.asarray(((rows[:, None] - centres[None]) ** 2).sum(axis=2))
