"""An oracle that enumerates every path, in plain NumPy: it shares no code with what it judges, and costs `K ** T`."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from longhmm.errors import LongHMMError


class Enumerated(NamedTuple):
    """Exact answers for one short sequence.

    Attributes:
        log_likelihood: `log p(y)`.
        gamma: `(T, K)`, `P(x_t = k | y)`.
        filtered: `(T, K)`, `P(x_t = k | y_0 .. y_t)`.
        xi: `(T - 1, K, K)`, `P(x_{t-1} = i, x_t = j | y)` for t = 1 .. T - 1.
        best_path: `(T,)`, the most probable path; `best_score`, its `log p(x, y)`.
        paths: `(K ** T, T)` and `probabilities` `(K ** T,)`, `P(x | y)` of every path.
    """

    log_likelihood: float
    gamma: np.ndarray
    filtered: np.ndarray
    xi: np.ndarray
    best_path: np.ndarray
    best_score: float
    paths: np.ndarray
    probabilities: np.ndarray


def enumerate_paths(initial: np.ndarray, transition: np.ndarray, log_likelihoods: np.ndarray) -> Enumerated:
    """Every answer by summing over all `K ** T` paths; `log_likelihoods` is `(T, K)`.

    `transition` is `(K, K)`, or `(T, K, K)` where it varies: entry t leads into row t.
    """
    length, n_states = log_likelihoods.shape
    if n_states**length > 2_000_000:
        raise LongHMMError(f"enumerate_paths needs K ** T of at most 2,000,000 paths, got {n_states} ** {length}.")
    with np.errstate(divide="ignore"):
        log_initial, log_transition = np.log(initial), np.log(transition)
    paths = np.array(list(itertools.product(range(n_states), repeat=length)))
    scores = path_scores(log_initial, log_transition, log_likelihoods, paths)
    total = _log_sum(scores)
    probabilities = np.exp(scores - total) if np.isfinite(total) else np.zeros(len(paths))
    gamma = np.array([[probabilities[paths[:, t] == k].sum() for k in range(n_states)] for t in range(length)])
    xi = np.zeros((length - 1, n_states, n_states))
    for t in range(1, length):
        np.add.at(xi[t - 1], (paths[:, t - 1], paths[:, t]), probabilities)
    filtered = np.zeros((length, n_states))
    for t in range(length):
        short = np.array(list(itertools.product(range(n_states), repeat=t + 1)))
        partial = path_scores(log_initial, log_transition, log_likelihoods[: t + 1], short)
        weights = np.exp(partial - _log_sum(partial)) if np.isfinite(_log_sum(partial)) else np.zeros(len(short))
        np.add.at(filtered[t], short[:, t], weights)
    best = int(np.argmax(scores))
    return Enumerated(total, gamma, filtered, xi, paths[best], float(scores[best]), paths, probabilities)


def path_scores(
    log_initial: np.ndarray, log_transition: np.ndarray, log_likelihoods: np.ndarray, paths: np.ndarray
) -> np.ndarray:
    scores = log_initial[paths[:, 0]] + log_likelihoods[0, paths[:, 0]]
    for t in range(1, paths.shape[1]):
        into = log_transition[t] if log_transition.ndim == 3 else log_transition
        scores = scores + into[paths[:, t - 1], paths[:, t]] + log_likelihoods[t, paths[:, t]]
    return scores


def _log_sum(scores: np.ndarray) -> float:
    peak = scores.max()
    return float(peak + np.log(np.exp(scores - peak).sum())) if np.isfinite(peak) else float("-inf")
