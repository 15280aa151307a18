"""How long states last and how often they occur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.block import Own
from longhmm.backends.stream import stream
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.inference.markov import stationary

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior


def dwell(
    posterior: Posterior, *, rate: float | None = None, interval: float = 0.9, data: Any = None, draws: int = 20
) -> pd.DataFrame:
    """See `Posterior.dwell`."""
    import pandas as pd

    if rate is not None and not rate > 0:
        raise ModelError(f"rate must be a positive number of samples per second, got {rate!r}.")
    if not 0 < interval < 1:
        raise ModelError(f"interval must lie between 0 and 1, got {interval!r}.")
    transition = np.asarray(posterior.draws["transition"]).reshape(-1, *(posterior.model.n_states,) * 2)
    with np.errstate(divide="ignore"):
        stay = np.diagonal(transition, axis1=1, axis2=2)
        # The sum of the others keeps its digits where the state hardly ever changes.
        lengths = 1.0 / (transition.sum(axis=2) - stay)
    quantities = {"dwell": lengths}
    if rate is not None:
        quantities["dwell_s"] = lengths / rate
    quantities["stationary"] = stationary_draws(transition)
    if data is not None:
        quantities["occupancy"] = _occupancy(posterior, data, draws)
    table = {}
    for name, values in quantities.items():
        table[name] = values.mean(axis=0)
        for end, level in (("lower", (1 - interval) / 2), ("upper", (1 + interval) / 2)):
            # A value that occurs, not one between two: a state that is never left lasts for ever.
            table[f"{name}_{end}"] = np.quantile(values, level, axis=0, method="inverted_cdf")
    return pd.DataFrame(table, index=pd.RangeIndex(posterior.model.n_states, name="state"))


def stationary_draws(transition: np.ndarray) -> np.ndarray:
    """`(n, K)`, the stationary distribution of each of `(n, K, K)` transition matrices."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(stationary)(jnp.asarray(transition)))


def _occupancy(posterior: Posterior, data: Any, draws: int) -> np.ndarray:
    """`(draws, K)`, the share of the data that each state accounts for, at each draw."""
    sequences = open_data(data)
    shares = []
    for params in posterior.iterate(draws):
        found = list(stream(posterior.model, posterior.model.validate(params), sequences, reduce=_visits))
        shares.append(np.sum(found, axis=0) / sequences.length)
    return np.stack(shares)


def _visits(own: Own) -> np.ndarray:
    assert own.probabilities is not None
    return own.probabilities.sum(axis=0)
