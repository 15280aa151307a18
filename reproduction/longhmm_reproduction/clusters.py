"""A short run of k-means, from which the paper's chains start: distant seeds, many restarts, the tightest one kept."""

from __future__ import annotations

import numpy as np

from longhmm.model.initialise import k_means

RESTARTS = 40


def k_means_start(rows: np.ndarray, n_groups: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Means and covariances, or standard deviations of one feature, of the groups of `rows`."""
    rows = np.asarray(rows, np.float64)
    everything = np.cov(rows.T, ddof=0).reshape(rows.shape[1], rows.shape[1])
    found = [_groups(rows, k_means(rows, n_groups, rng), n_groups, everything) for _ in range(RESTARTS)]
    _, means, covariances = min(found, key=lambda each: each[0])
    if rows.shape[1] == 1:
        return {"mean": means[:, 0], "sd": np.sqrt(covariances[:, 0, 0])}
    return {"mean": means, "covariance": covariances}


def _groups(
    rows: np.ndarray, labels: np.ndarray, n_groups: int, everything: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """How far rows are from the centres of their groups, squared and summed, the centres, and the covariances."""
    # An empty or flat group gets a little of the spread of all rows.
    floor = 1e-3 * np.diag(np.diag(everything))
    total, means, covariances = 0.0, [], []
    for group in range(n_groups):
        members = rows[labels == group] if np.any(labels == group) else rows
        away = members - members.mean(axis=0)
        total += float(np.sum(away**2))
        means.append(members.mean(axis=0))
        covariances.append(away.T @ away / len(members) + floor)
    return total, np.stack(means), np.stack(covariances)
