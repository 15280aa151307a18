"""One step of the complete recipe for stochastic-gradient MCMC with constant D, and the noise of minibatch gradients.

With `D = L L^T` and an estimate g_hat of the gradient of the log density (F24),

    theta' = theta + h D g_hat + N(0, 2 h D - h^2 D V D)

where V is the covariance of g_hat: what its own noise contributes is not injected again, and where that is already too
much nothing is. With scores `g_c` of the S windows and weights `w_c`, one over the probability of a block (F27),

    V = S / (S - 1) sum_c (1 - 1 / w_c) (w_c g_c - mean) (w_c g_c - mean)^T

Reference: Y.-A. Ma, T. Chen and E. B. Fox, A complete recipe for stochastic gradient MCMC, NeurIPS 2015.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from longhmm.errors import ModelError
from longhmm.inference.scaling import product
from longhmm.target.minibatch import Minibatch

FORGETTING = 0.01  # share of the newest estimate of V once the average has seen 1 / FORGETTING steps


class Moved(NamedTuple):
    """The next point, and the share of directions in which the gradient's noise alone was too much already."""

    theta: Array
    clipped: Array


def step(key: Array, theta: Array, gradient: Array, factor: Array, step_size: Any, covariance: Any = None) -> Moved:
    """One step from a flat vector; `factor` is L, a matrix or the diagonal of one, `covariance` `L^T V L`, or None."""
    if covariance is None:
        noise = jnp.sqrt(2.0 * step_size) * jax.random.normal(key, theta.shape, theta.dtype)
        clipped = jnp.zeros((), theta.dtype)
    else:
        identity = jnp.eye(theta.shape[0], dtype=theta.dtype)
        noise, clipped = normal_with(key, 2.0 * step_size * identity - step_size**2 * covariance)
    drift = scaled(factor, scaled_back(factor, gradient))
    return Moved(theta + step_size * drift + scaled(factor, noise), clipped)


def normal_with(key: Array, covariance: Array) -> tuple[Array, Array]:
    """A normal draw with a symmetric matrix as covariance, its negative eigenvalues taken as 0; and their share.

    By the symmetric root, which does not depend on the signs and bases that rounding chooses for eigenvectors.
    """
    values, vectors = jnp.linalg.eigh(covariance)
    draw = jax.random.normal(key, values.shape, values.dtype)
    # Rounding makes zero eigenvalues slightly negative; those are not counted.
    slack = 1e-5 * jnp.max(jnp.abs(values))
    clipped = jnp.mean((values < -slack).astype(values.dtype))
    return vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * (vectors.T @ draw)), clipped


def scaled(factor: Array, vector: Array) -> Array:
    """`L v`, for L as a matrix or as a diagonal."""
    return factor * vector if factor.ndim == 1 else product(factor, vector)


def scaled_back(factor: Array, vector: Array) -> Array:
    """`L^T v`, along the last axis of `vector`."""
    return vector * factor if factor.ndim == 1 else product(factor.T, vector)


# The noise of a minibatch gradient --------------------------------------------------------------------------------


def check_noise_known(target: Any, name: str) -> None:
    """Refuse targets whose noise cannot be read off their windows."""
    if not target.apart:
        raise ModelError(
            f"noise_correction of {name} needs the scores of independent windows, as Buffered(...) gives them, got "
            f"{type(target).__name__}: leave noise_correction out (full data have no noise; for control variates "
            "the default sampler matches the noise)."
        )
    if target.source.scheme.count < 2:
        raise ModelError(
            "noise_correction needs at least 2 windows per minibatch to see their spread, got 1: use more windows."
        )


def _deviations(values: Array, minibatch: Minibatch) -> Array:
    """`(S, ..., P)`, whose squares add up to V."""
    count = values.shape[0]
    weights = minibatch.weights.reshape((count,) + (1,) * (values.ndim - 1))
    weighted = weights * values
    # A block that is always drawn brings no noise; its weight may come out a little below 1.
    missed = jnp.maximum(1.0 - 1.0 / weights, 0.0)
    return jnp.sqrt(missed * (count / (count - 1.0))) * (weighted - jnp.mean(weighted, axis=0))


def covariance(values: Array, minibatch: Minibatch) -> Array:
    """`V (..., P, P)` from values `(S, ..., P)` of the windows of one minibatch."""
    deviations = _deviations(values, minibatch)
    return jnp.einsum("s...i,s...j->...ij", deviations, deviations)


def variance(values: Array, minibatch: Minibatch) -> Array:
    """The diagonal of V, `(..., P)`."""
    return jnp.sum(_deviations(values, minibatch) ** 2, axis=0)


def averaged(before: Array, now: Array, index: Array) -> Array:
    """The moving average after step `index` (counted from 0): one minibatch says little, and V moves with the chain."""
    return before + (now - before) * jnp.maximum(1.0 / (index + 1.0), FORGETTING)
