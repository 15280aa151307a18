"""Independent answers for tests of the streamed passes: plain NumPy recursions on logarithms, one step at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

from longhmm import Emission
from longhmm.model.hmm import HMM


class Given(Emission):
    """Observations that are log likelihoods themselves: row t holds `log p(y_t | x_t = k)` for every k."""

    def __init__(self, n_states: int) -> None:
        super().__init__(None, dim=n_states, shift=dist.Normal(0.0, 1.0))

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return (y if self.vector_valued else y[..., None]) + params["shift"]


class Reference(NamedTuple):
    """Answers for several sequences laid end to end; `transitions` and `log_likelihood` are sums over them."""

    log_likelihood: float
    filtered: np.ndarray
    gamma: np.ndarray
    transitions: np.ndarray
    first: np.ndarray
    xi: np.ndarray
    best_score: float


def given_model(n_states: int, **options: Any) -> HMM:
    return HMM(n_states, Given(n_states), **options)


def given_params(initial: np.ndarray, transition: np.ndarray) -> dict[str, np.ndarray]:
    return {"initial": initial, "transition": transition, "shift": np.zeros(len(initial))}


def log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)


def log_sum(values: np.ndarray, axis: int) -> np.ndarray:
    peak = values.max(axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    return log(np.exp(values - peak).sum(axis=axis)) + np.squeeze(peak, axis)


def reference(initial: np.ndarray, transition: np.ndarray, sequences: Sequence[np.ndarray]) -> Reference:
    """Forward-backward and Viterbi for log likelihoods `(T, K)` of each sequence; missing rows are zeros."""
    parts = [_one(log(np.asarray(initial)), log(np.asarray(transition)), logs) for logs in sequences]
    filtered, gamma, xi = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
    first = np.sum([part[2][0] for part in parts], axis=0)
    return Reference(
        sum(part[0] for part in parts), filtered, gamma, xi.sum(0), first, xi, sum(part[4] for part in parts)
    )


def _one(log_initial: np.ndarray, log_transition: np.ndarray, logs: np.ndarray) -> Any:
    length, n_states = logs.shape
    alpha, beta = np.zeros((length, n_states)), np.zeros((length, n_states))
    total, score = 0.0, log_initial + logs[0]
    for t in range(length):
        alpha[t] = logs[t] + (log_initial if t == 0 else log_sum(alpha[t - 1][:, None] + log_transition, 0))
        normaliser = log_sum(alpha[t], 0)
        alpha[t] -= normaliser
        total += float(normaliser)
        if t > 0:
            score = (score[:, None] + log_transition).max(0) + logs[t]
    for t in range(length - 1, 0, -1):
        beta[t - 1] = log_sum(log_transition + (logs[t] + beta[t])[None, :], 1)
        beta[t - 1] -= log_sum(alpha[t - 1] + beta[t - 1], 0)
    gamma = np.exp(alpha + beta - log_sum(alpha + beta, 1)[:, None])
    xi = np.zeros((max(length - 1, 0), n_states, n_states))
    for t in range(1, length):
        joint = alpha[t - 1][:, None] + log_transition + (logs[t] + beta[t])[None, :]
        xi[t - 1] = np.exp(joint - log_sum(joint.ravel(), 0))
    return total, np.exp(alpha), gamma, xi, float(score.max())


def path_score(initial: np.ndarray, transition: np.ndarray, logs: np.ndarray, path: np.ndarray) -> float:
    """`log p(x, y)` of one path of one sequence."""
    path = np.asarray(path, int)
    moves = log(np.asarray(transition))[path[:-1], path[1:]].sum()
    return float(log(np.asarray(initial))[path[0]] + moves + logs[np.arange(len(path)), path].sum())


def random_chain(
    seed: int, n_states: int, length: int, *, spread: float = 1.0, stay: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Initial law, transition matrix and log likelihoods `(T, K)`."""
    rng = np.random.default_rng(seed)
    transition = stay * np.eye(n_states) + (1 - stay) * rng.dirichlet(np.ones(n_states), size=n_states)
    return rng.dirichlet(np.ones(n_states)), transition, spread * rng.normal(size=(length, n_states))
