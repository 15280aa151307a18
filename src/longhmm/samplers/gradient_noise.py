"""The noise of a minibatch gradient, estimated from the spread of its own windows.

With cell scores `g_c` and weights `w_c`, one over the probability with which a cell is among the S that are drawn, the
estimate `sum_c w_c g_c` has a covariance that its own windows tell (F27),

    V = S / (S - 1) sum_c (1 - 1 / w_c) (w_c g_c - mean) (w_c g_c - mean)^T

which is `(N^2 / S)(1 - S/N) cov(g_c)` where all of N cells are as likely. A single minibatch says little about it, so
estimates are averaged over steps: plainly at first, later with exponential forgetting, since V moves with the
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from longhmm.backends.evaluate import Statistics
from longhmm.errors import ModelError
from longhmm.target.coordinates import scores
from longhmm.target.estimators import WindowTarget
from longhmm.target.minibatch import Minibatch

FORGETTING = 0.01  # share of the newest estimate once the average has seen 1 / FORGETTING steps


def check_noise_known(target: Any, name: str) -> None:
    """Refuse estimators whose noise cannot be read off their windows."""
    if not target.apart:
        raise ModelError(
            f"noise_correction of {name} needs the scores of independent windows, as Buffered(...) gives them, got "
            f"{type(target).__name__}: leave noise_correction out (full data have no noise; for control variates "
            "ControlVariateSGLD() matches the noise)."
        )
    if target.source.scheme.count < 2:
        raise ModelError(
            "noise_correction needs at least 2 windows per minibatch to see their spread, got 1: use more windows."
        )


def window_scores(target: WindowTarget, coordinates: Mapping[str, Any], statistics: Statistics) -> dict[str, Any]:
    """The score `g_c` of every window, by name, with a leading axis S."""
    return scores(target.model, coordinates, statistics, initial_moves=target.initial is None)


def _deviations(values: jax.Array, minibatch: Minibatch) -> jax.Array:
    """`(S, ..., P)`, whose squares add up to V."""
    count = values.shape[0]
    weights = minibatch.weights.reshape((count,) + (1,) * (values.ndim - 1))
    scaled = weights * values
    # A cell that is always drawn brings no noise; its weight may come out a little below 1.
    missed = jnp.maximum(1.0 - 1.0 / weights, 0.0)
    return jnp.sqrt(missed * (count / (count - 1.0))) * (scaled - jnp.mean(scaled, axis=0))


def covariance(values: jax.Array, minibatch: Minibatch) -> jax.Array:
    """`V (..., P, P)` from values `(S, ..., P)` of the windows of one minibatch."""
    found = _deviations(values, minibatch)
    return jnp.einsum("s...i,s...j->...ij", found, found)


def variance(values: jax.Array, minibatch: Minibatch) -> jax.Array:
    """The diagonal of V, `(..., P)`."""
    return jnp.sum(_deviations(values, minibatch) ** 2, axis=0)


def averaged(before: jax.Array, now: jax.Array, index: jax.Array) -> jax.Array:
    """The moving average after step `index` (counted from 0), in which `now` is the newest estimate."""
    return before + (now - before) * jnp.maximum(1.0 / (index + 1.0), FORGETTING)
