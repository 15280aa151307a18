"""The truth for small chunks: every path of states, one after the other, in plain NumPy."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np


class Truth(NamedTuple):
    """Of one chunk: log likelihood of all rows, first states, transitions by row, probabilities, the best path and
    its log weight, and the probability of every path."""

    log_likelihood: float
    first: np.ndarray
    pairs: np.ndarray
    gamma: np.ndarray
    best: np.ndarray
    best_score: float
    paths: dict[tuple[int, ...], float]


def enumerate_paths(
    before: np.ndarray, matrices: np.ndarray, logs: np.ndarray, opens: bool, after: np.ndarray | None = None
) -> Truth:
    """All paths through rows with matrices `(n, K, K)` and log likelihoods `(n, K)`, or `(n, K, K)` of pairs.

    `before`: distribution of the state before the first row, or of the one at the first row where it `opens` its
    sequence (of the state before it where likelihoods are of pairs). `after`: message from behind.
    """
    n, k = matrices.shape[:2]
    pair = logs.ndim == 3
    weights: dict[tuple[int, ...], float] = {}
    # A path has a state before the chunk, unless the chunk opens a sequence without pairs.
    starts = range(k) if pair or not opens else (0,)
    for origin in starts:
        for path in product(range(k), repeat=n):
            total = np.log(before[origin]) if pair or not opens else 0.0
            previous = origin
            for t, state in enumerate(path):
                if t == 0 and opens and not pair:
                    total += np.log(before[state])
                else:
                    total += np.log(matrices[t, previous, state])
                total += logs[t, previous, state] if pair else logs[t, state]
                previous = state
            total += 0.0 if after is None else np.log(after[previous])
            weights[(origin, *path)] = total
    peak = max(weights.values())
    scaled = {path: np.exp(weight - peak) if weight > -np.inf else 0.0 for path, weight in weights.items()}
    total = sum(scaled.values()) or np.nan  # no path is possible: only `best_score` means something
    first, pairs, gamma = np.zeros(k), np.zeros((n, k, k)), np.zeros((n, k))
    paths: dict[tuple[int, ...], float] = {}
    for path, weight in scaled.items():
        share = weight / total
        paths[path[1:]] = paths.get(path[1:], 0.0) + share
        first[path[0] if pair else path[1]] += share if opens else 0.0
        for t in range(n):
            gamma[t, path[t + 1]] += share
            if t > 0 or pair or not opens:
                pairs[t, path[t], path[t + 1]] += share
    best = max(weights, key=lambda path: weights[path])
    return Truth(float(np.log(total) + peak), first, pairs, gamma, np.array(best[1:]), peak, paths)
