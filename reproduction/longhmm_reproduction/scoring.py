"""How good parameters are: prediction of held-out stretches, and distance from the true transition matrix.

NumPy and JAX alone, so that experiments also run where nothing else is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.inference.markov import stationary
from longhmm.inference.recursions import Steps, filtered
from longhmm.model.hmm import HMM

AHEAD = 10  # observations between the last one seen and the one predicted, as in the paper
UNSEEN = 50  # observations of a stretch that only tell the filter where it is

Params = Mapping[str, np.ndarray]


def best_assignment(cost: np.ndarray) -> np.ndarray:
    """`order` that minimises `sum_k cost[k, order[k]]`, over all permutations, by dynamic programming over subsets.

    Takes `K 2^K` operations: meant for a dozen states at most.
    """
    n_states = len(cost)
    # By the set of columns used so far, as bits: the least cost, and who got which.
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for row in range(n_states):
        reached: dict[int, tuple[float, tuple[int, ...]]] = {}
        for used, (total, order) in best.items():
            for column in range(n_states):
                if used >> column & 1:
                    continue
                now = used | 1 << column
                value = total + float(cost[row, column])
                if now not in reached or value < reached[now][0]:
                    reached[now] = (value, (*order, column))
        best = reached
    return np.array(best[(1 << n_states) - 1][1], dtype=np.int64)


def matched(params: Params, truth: Params, location: str) -> dict[str, np.ndarray]:
    """Parameters with their states renumbered like those of `truth`, by the squared distance of locations."""
    here, there = (np.reshape(each[location], (len(each["transition"]), -1)) for each in (params, truth))
    spread = np.maximum(there.std(axis=0), 1e-12)
    order = best_assignment((((there[:, None] - here[None]) / spread) ** 2).sum(axis=2))
    found = {name: np.asarray(value)[order] for name, value in params.items()}
    found["transition"] = np.asarray(params["transition"])[np.ix_(order, order)]
    return found


def transition_error(params: Params, truth: Params, location: str) -> float:
    """Frobenius norm of the difference of transition matrices, after matching states."""
    return float(np.linalg.norm(matched(params, truth, location)["transition"] - truth["transition"]))


def as_independent(params: Params) -> dict[str, np.ndarray]:
    """What an i.i.d. analysis says about transitions: every row equals the weights of the mixture."""
    transition = np.asarray(params["transition"])
    return {**params, "transition": np.tile(transition.mean(axis=0), (len(transition), 1))}


def mean_params(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Means over the leading axis; rows of transition matrices still sum to one."""
    return {name: np.asarray(np.mean(value, axis=0), np.float64) for name, value in draws.items()}


def predictive_log_prob(model: HMM, params: Params, stretches: np.ndarray, ahead: int = AHEAD) -> float:
    """Mean over held-out stretches `(W, n, D)` of `log p(y_t | y up to t - ahead)`; the first times are not counted."""
    with jax.enable_x64(True):
        # Stretches begin anywhere: the law of first states has no part in it.
        used = {name: value for name, value in params.items() if name != "initial"}
        arrays = {name: jnp.asarray(np.asarray(value), jnp.float64) for name, value in used.items()}
        found = _log_densities(model, ahead, arrays, jnp.asarray(stretches))
    return float(np.mean(np.asarray(found)[UNSEEN:]))


@partial(jax.jit, static_argnames=("model", "ahead"))
def _log_densities(model: HMM, ahead: int, params: Mapping[str, jax.Array], stretches: jax.Array) -> jax.Array:
    """`(n - ahead, W)`, `log p(y_{t + ahead} | y_0 .. y_t)`; a stretch begins from the stationary law."""
    values = jnp.swapaxes(stretches, 0, 1).astype(params["transition"].dtype)
    logs = jnp.swapaxes(model.log_likelihoods(params, Rows(values, jnp.ones(values.shape, bool))), 1, 2)
    law = stationary(params["transition"])
    before = jnp.broadcast_to(jnp.log(law)[:, None], logs.shape[1:])
    starts = jnp.zeros(logs.shape[2], bool)
    alpha = jnp.exp(filtered(before, Steps(params["transition"], logs, law, starts)).log_forward[1:])
    jump = jnp.linalg.matrix_power(params["transition"], ahead)
    predicted = jnp.einsum("tkw,kj->tjw", alpha[:-ahead], jump)
    return jax.nn.logsumexp(jnp.log(jnp.maximum(predicted, 1e-300)) + logs[ahead:], axis=1)


def cut_stretches(data: np.ndarray, count: int, length: int) -> np.ndarray:
    """`count` neighbouring stretches `(count, length, D)` from the beginning of held-out data."""
    return np.ascontiguousarray(data[: count * length].reshape(count, length, -1))


def mean_and_error(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean over repetitions, and its standard error (0 for a single one)."""
    array = np.asarray(values, np.float64)
    error = float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else 0.0
    return float(array.mean()), error


def with_errors(metrics: Mapping[str, Any]) -> dict[str, float]:
    """`{metric: values of all repetitions}` as `{metric: mean, metric_se: standard error}`."""
    found: dict[str, float] = {}
    for name, values in metrics.items():
        found[name], found[f"{name}_se"] = mean_and_error(np.atleast_1d(values))
    return found
