"""What comes after the end of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.simulate import Ahead, checked_covariates, go_on
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
    covariates: Any = None,
) -> Forecast:
    """See `Posterior.forecast`."""
    if steps < 1 or paths < 1:
        raise ModelError(f"steps and paths must be at least 1, got {steps!r} and {paths!r}.")
    model, sequences = posterior.model, open_data(data)
    future = checked_covariates(model, covariates, steps)
    lags = jnp.broadcast_to(_last_rows(model, sequences, sequence), (paths, model.lags, model.dim))
    laws, samples = [], []
    key = jax.random.key(seed)
    for index, params in enumerate(posterior.iterate(draws)):
        law, ahead = final_law(model, params, sequences, sequence), []
        with jax.enable_x64(True):
            arrays = {name: jnp.asarray(value) for name, value in params.items()}
            for matrix in np.asarray(_matrices(model, arrays, future)):
                law = law @ matrix
                ahead.append(law)
            first, further = jax.random.split(jax.random.fold_in(key, index))
            states = jax.random.categorical(first, jnp.log(jnp.asarray(ahead[0])), shape=(paths,))
            samples.append(go_on(model, arrays, Ahead(states, lags, jnp.asarray(True)), future, further)[2])
        laws.append(np.stack(ahead))
    observed = np.concatenate([np.asarray(each) for each in samples])
    levels = np.quantile(observed, list(quantiles), axis=0)
    return Forecast(
        np.mean(laws, axis=0),
        observed.mean(axis=0),
        observed.std(axis=0),
        {float(level): values for level, values in zip(quantiles, levels, strict=True)},
        observed,
    )


def _last_rows(model: HMM, sequences: Sequences, sequence: int) -> np.ndarray:
    """`(p, D)`, the rows that the first new one looks back at, the nearest first; NaN where there are none."""
    found = np.full((model.lags, model.dim), np.nan)
    begin, end = int(sequences.offsets[:-1][sequence]), int(sequences.offsets[1:][sequence])
    count = min(model.lags, end - begin)
    if count:
        block = sequences.rows(end - count, end)
        found[:count] = np.where(block.observed, block.values, np.nan)[::-1]
    return found


@jax.jit
def _matrices(model: HMM, params: Mapping[str, jax.Array], covariates: jax.Array) -> jax.Array:
    """`(steps, K, K)`, the matrices of the transitions into future rows."""
    found: jax.Array = model.transitions.matrices(params[model.transitions.parameter], covariates)
    return found
