"""The level of each state, with its uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.preprocess import Preprocessing
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.turn import unwrapped

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.posterior.posterior import Posterior

MOST_DRAWS = 1000


def level_draws(posterior: Posterior, draws: int = MOST_DRAWS) -> np.ndarray:
    """`(draws, K)`, first component of the emission's location in each state, for draws of the parameters."""
    with jax.enable_x64(True):
        stacked = {name: jnp.asarray(each) for name, each in stacked_draws(posterior, draws).items()}
        found = np.asarray(_locations(posterior.model, stacked))
    return unwrapped(found, (0,)) if posterior.model.emission.support is constraints.circular else found


def stacked_draws(posterior: Posterior, n: int) -> dict[str, np.ndarray]:
    """Parameters of `n` evenly spaced draws, `(n, ...)` each: what varies, and constants repeated."""
    chains, draws = np.array(posterior.thinned(n)).T
    found = {str(name): np.asarray(value)[chains, draws] for name, value in posterior.draws.items()}
    constants = {name: value for name, value in posterior.mean_params().items() if name not in (*found, "initial")}
    return found | {name: np.broadcast_to(value, (len(chains), *value.shape)) for name, value in constants.items()}


def levels(posterior: Posterior, *, interval: float = 0.9, preprocessing: Preprocessing | None = None) -> pd.DataFrame:
    """One row per state: `level` at the posterior mean, and the ends of its central interval over the draws.

    Args:
        preprocessing: what was done to the recording; levels are then given in the units of its file.
    """
    import pandas as pd

    if not 0 < interval < 1:
        raise ModelError(f"interval must lie between 0 and 1, got {interval!r}.")
    undo = (preprocessing or Preprocessing()).in_file_units
    found = level_draws(posterior)
    lower, upper = np.quantile(found, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    table = {"level": undo(mean_levels(posterior)), "level_lower": undo(lower), "level_upper": undo(upper)}
    return pd.DataFrame(table, index=pd.RangeIndex(posterior.model.n_states, name="state"))


def mean_levels(posterior: Posterior) -> np.ndarray:
    """`(K,)`, first component of the emission's location in each state, at the posterior mean."""
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in posterior.mean_params().items()}
        return np.asarray(posterior.model.emission.location(params))


@jax.jit
def _locations(model: HMM, params: dict[str, jax.Array]) -> jax.Array:
    return jax.vmap(model.emission.location)(params)
