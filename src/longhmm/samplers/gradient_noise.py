"""The noise of a minibatch gradient, estimated from the spread of its own windows.

With S of N cells drawn and cell scores `g_c`, the estimate `(N/S) sum_c g_c` has the covariance

    V = (N^2 / S) (1 - S/N) cov(g_c)

A single minibatch says little about cov(g_c), so estimates are averaged over steps: plainly at first, later with
exponential forgetting, since V moves with the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from longhmm.errors import ModelError
from longhmm.gradients.coordinates import scores
from longhmm.gradients.estimators import BoundWindows
from longhmm.gradients.minibatch import Minibatch
from longhmm.kernels.statistics import Statistics

FORGETTING = 0.01  # share of the newest estimate once the average has seen 1 / FORGETTING steps


def check_noise_known(estimator: Any, name: str) -> None:
    """Refuse estimators whose noise cannot be read off their windows."""
    if not isinstance(estimator, BoundWindows):
        raise ModelError(
            f"noise_correction of {name} needs the scores of independent windows, as Buffered(...) gives them, got "
            f"{type(estimator).__name__}: leave noise_correction out (full data have no noise; for control variates "
            "MatchedLangevin() matches the noise)."
        )
    if estimator.source.rotation.count < 2:
        raise ModelError(
            "noise_correction needs at least 2 windows per minibatch to see their spread, got 1: use more windows."
        )


def window_scores(estimator: BoundWindows, coordinates: Mapping[str, Any], statistics: Statistics) -> dict[str, Any]:
    """The score `g_c` of every window, by name, with a leading axis S."""
    return scores(estimator.model, coordinates, statistics, initial_moves=estimator.initial is None)


def covariance_factor(minibatch: Minibatch) -> Any:
    """`(N^2 / S)(1 - S/N)`, which turns the covariance between windows into that of the gradient."""
    count = minibatch.windows.length.shape[0]
    return count * minibatch.weight * (minibatch.weight - 1.0)


def covariance(values: jax.Array, minibatch: Minibatch) -> jax.Array:
    """`V (..., P, P)` from values `(S, ..., P)` of the windows of one minibatch."""
    centred = values - jnp.mean(values, axis=0)
    spread = jnp.einsum("s...i,s...j->...ij", centred, centred) / (values.shape[0] - 1)
    return covariance_factor(minibatch) * spread


def variance(values: jax.Array, minibatch: Minibatch) -> jax.Array:
    """The diagonal of V, `(..., P)`."""
    return covariance_factor(minibatch) * jnp.var(values, axis=0, ddof=1)


def averaged(before: jax.Array, now: jax.Array, index: jax.Array) -> jax.Array:
    """The moving average after step `index` (counted from 0), in which `now` is the newest estimate."""
    return before + (now - before) * jnp.maximum(1.0 / (index + 1.0), FORGETTING)
