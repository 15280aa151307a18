"""What comes after the end of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.predictive import final_law

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


@dataclass(frozen=True)
class Forecast:
    """Predictions of the `steps` observations after the last one; row h is h + 1 steps ahead.

    Attributes:
        state_probabilities: `(steps, K)`, `P(x = k | y)`, averaged over draws of the parameters.
        mean, sd: `(steps, D)`, of the observation, over parameters, states and noise.
        quantiles: `{level: (steps, D)}`.
        samples: `(paths, steps, D)`, sample paths of observations, from which the three above are computed.
    """

    state_probabilities: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    quantiles: dict[float, np.ndarray]
    samples: np.ndarray


def forecast(
    posterior: Posterior,
    data: Any,
    steps: int,
    *,
    draws: int = 200,
    paths: int = 20,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    sequence: int = -1,
    seed: int = 0,
) -> Forecast:
    """See `Posterior.forecast`."""
    if steps < 1 or paths < 1:
        raise ModelError(f"steps and paths must be at least 1, got {steps!r} and {paths!r}.")
    sequences = open_data(data)
    laws, samples = [], []
    key = jax.random.key(seed)
    for index, params in enumerate(posterior.iterate(draws)):
        law = final_law(posterior.model, params, sequences, sequence)
        ahead = np.empty((steps, len(law)))
        for step in range(steps):
            law = law @ params["transition"]
            ahead[step] = law
        laws.append(ahead)
        with jax.enable_x64(True):
            arrays = {name: jnp.asarray(value) for name, value in params.items()}
            samples.append(
                _sample_paths(posterior.model, steps, paths, jax.random.fold_in(key, index), arrays, ahead[0])
            )
    observed = np.concatenate([np.asarray(each) for each in samples])
    levels = np.quantile(observed, list(quantiles), axis=0)
    return Forecast(
        np.mean(laws, axis=0),
        observed.mean(axis=0),
        observed.std(axis=0),
        {float(level): values for level, values in zip(quantiles, levels, strict=True)},
        observed,
    )


@partial(jax.jit, static_argnames=("steps", "paths"))
def _sample_paths(
    model: HMM, steps: int, paths: int, key: jax.Array, params: Mapping[str, jax.Array], first: Any
) -> jax.Array:
    """`(paths, steps, D)` observations along sampled paths of states."""
    state_key, noise_key = jax.random.split(key)
    log_transition = jnp.log(params["transition"])

    def step(states: jax.Array, one: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.random.categorical(one, log_transition[states]), states

    keys = jax.random.split(state_key, steps + 1)
    start = jax.random.categorical(keys[0], jnp.log(first), shape=(paths,))
    states = jax.lax.scan(step, start, keys[1:])[1].T
    values = model.emission.sample(noise_key, params, states.reshape(-1))
    return values.reshape(paths, steps, -1)
