"""Group the rows of a table: a first guess at which observations share a state."""

from __future__ import annotations

import numpy as np

LLOYD_STEPS = 50


def standardised(rows: np.ndarray) -> np.ndarray:
    """Every column with mean 0 and standard deviation 1; a constant one becomes 0."""
    centred = rows - rows.mean(axis=0)
    sd = centred.std(axis=0)
    return centred / np.where(sd > 1e-12 * np.abs(rows).max(axis=0, initial=0.0), np.where(sd > 0, sd, 1.0), np.inf)


def smoothed(table: np.ndarray, width: int) -> np.ndarray:
    """Moving averages over `width` neighbouring rows, fewer at the ends: what is frequent nearby."""
    if width <= 1:
        return table
    ones = np.ones(width)
    share = np.convolve(np.ones(len(table)), ones, "same")
    sums = np.stack([np.convolve(column, ones, "same")[: len(table)] for column in table.T], axis=1)
    return sums / share[: len(table), None] if len(table) >= width else np.broadcast_to(table.mean(axis=0), table.shape)


def cut_at_quantiles(column: np.ndarray, n_groups: int) -> np.ndarray:
    """Labels of groups of equal mass, in rising order; fewer groups where values are tied."""
    edges = np.quantile(column, np.arange(1, n_groups) / n_groups)
    return np.searchsorted(edges, column, side="right" if n_groups > 1 and edges[0] == column.min() else "left")


def k_means(rows: np.ndarray, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Labels by Lloyd's iteration from k-means++ seeds; a group may be empty if there are too few distinct rows."""
    centres = _seeds(rows, n_groups, rng)
    labels = np.full(len(rows), -1)
    for _ in range(LLOYD_STEPS):
        new = np.argmin(_squared_distances(rows, centres), axis=1)
        if np.array_equal(new, labels):
            break
        labels = new
        for group in np.unique(labels):
            centres[group] = rows[labels == group].mean(axis=0)
    return labels


def _seeds(rows: np.ndarray, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Each further centre is a row drawn in proportion to its squared distance from the centres so far."""
    centres = [rows[rng.integers(len(rows))]]
    nearest = np.full(len(rows), np.inf)
    for _ in range(n_groups - 1):
        nearest = np.minimum(nearest, ((rows - centres[-1]) ** 2).sum(axis=1))
        total = nearest.sum()
        chance = nearest / total if total > 0 else None
        centres.append(rows[rng.choice(len(rows), p=chance)])
    return np.array(centres)


def _squared_distances(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """`(row, centre)`; feature by feature, since a sum over a short last axis is slow."""
    return sum((column[:, None] - places) ** 2 for column, places in zip(rows.T, centres.T, strict=True))
