"""`ln p(y_test | y_train)`: how well parameters predict what comes after the data they were learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.rows import Rows
from longhmm.inference.markov import stationary
from longhmm.inference.recursions import Steps, filtered
from longhmm.model.hmm import HMM

TAIL = 2_000  # training observations read before the held-out ones, to find the state they begin in


def held_out_log_probs(model: HMM, params: Mapping[str, np.ndarray], train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """`log p(y_t | y_train, held-out ones before t)` for every held-out observation, at given parameters."""
    tail = train[-TAIL:]
    values = np.concatenate([tail, test]).reshape(len(tail) + len(test), 1, -1)
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(np.asarray(value), jnp.float64) for name, value in params.items()}
        found = _log_probs(model, arrays, jnp.asarray(values, jnp.float64))
        return np.asarray(found)[len(tail) :]


def held_out_log_prob(model: HMM, params: Mapping[str, np.ndarray], train: np.ndarray, test: np.ndarray) -> float:
    """`ln p(y_test | y_train)` per held-out observation."""
    return float(held_out_log_probs(model, params, train, test).mean())


def in_blocks(values: np.ndarray, length: int) -> np.ndarray:
    """Means over consecutive blocks: neighbours depend on one another, distant blocks hardly do."""
    count = max(1, len(values) // length)
    return values[: len(values) // count * count].reshape(count, -1).mean(axis=1)


@partial(jax.jit, static_argnames=("model",))
def _log_probs(model: HMM, params: Mapping[str, jax.Array], values: jax.Array) -> jax.Array:
    logs = jnp.swapaxes(model.log_likelihoods(params, Rows(values, jnp.ones(values.shape, bool))), 1, 2)
    law = stationary(params["transition"])
    before = jnp.log(law)[:, None]
    return filtered(before, Steps(params["transition"], logs, law, jnp.zeros(1, bool))).log_normaliser[:, 0]
