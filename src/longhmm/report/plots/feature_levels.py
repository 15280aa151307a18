"""The level of every state, feature by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def feature_levels(posterior: Posterior) -> np.ndarray:
    """`(K, D)` at the posterior mean; `(K, 1)` where only the level of the first feature is known."""
    params, model = posterior.mean_params(), posterior.model
    mean = params.get("mean")
    if model.dim > 1 and mean is not None and mean.shape == (model.n_states, model.dim):
        return np.asarray(mean, np.float64)
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        return np.asarray(model.emission.location(arrays), np.float64)[:, None]
