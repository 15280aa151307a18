"""Small pieces that every recursion shares: logarithms and likelihoods that are safe to exponentiate."""

from typing import Any

import jax
import jax.numpy as jnp


def peak_scaled(log_likelihoods: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Likelihoods `(time, K, W)`, or of pairs, divided by the largest one at each time, and its logarithm `(time, W)`;
    zeros and 0, never NaN, where every state is impossible."""
    states = tuple(range(1, log_likelihoods.ndim - 1))
    peak = jnp.max(log_likelihoods, axis=states)
    peak = jax.lax.stop_gradient(jnp.where(jnp.isneginf(peak), 0.0, peak))
    return jnp.exp(log_likelihoods - jnp.expand_dims(peak, states)), peak


FUSED = 16  # columns of a matrix up to which a product is a sum that XLA fuses with what is around it


def product(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """`matrix (..., n, m)` times `vector (..., m)`; calling a library costs more than a small product itself."""
    if matrix.shape[-1] <= FUSED:
        return jnp.sum(matrix * vector[..., None, :], axis=-1)
    return jnp.einsum("...ij,...j->...i", matrix, vector)


def safe_log(values: jax.Array) -> jax.Array:
    """Logarithm with minus infinity at zero and a zero, not NaN, derivative there."""
    positive = values > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, values, 1.0)), -jnp.inf)


def log_sum_exp(values: jax.Array, axis: int) -> jax.Array:
    """Log of the sum of exponentials; a slice of minus infinities gives minus infinity, with a zero derivative."""
    peak = jnp.max(values, axis=axis, keepdims=True)
    peak = jax.lax.stop_gradient(jnp.where(jnp.isneginf(peak), 0.0, peak))
    return safe_log(jnp.sum(jnp.exp(values - peak), axis=axis)) + jnp.squeeze(peak, axis)


def at_zero(log_messages: jax.Array, axis: int = 0) -> jax.Array:
    """Messages with their largest entry along the axis of states moved to 0; what is impossible stays so."""
    peak = jnp.max(log_messages, axis=axis, keepdims=True)
    return log_messages - jnp.where(jnp.isneginf(peak), 0.0, peak)


def least_normaliser(transition: jax.Array, length: int) -> jax.Array:
    """What the normaliser of every step must exceed for a linear recursion to have lost nothing that matters.

    Underflow takes at most `tiny` from each of the K + 2 products and sums behind an entry, so `(K + 2) tiny / c` once
    messages are divided by their normaliser c. With m the least entry of `A` no backward message, scaled so that
    `sum_k alpha beta = 1`, exceeds 1 / m: the likelihood changes by a relative `T K (K + 2) tiny / (m c)` at most, less
    than rounding if c exceeds what is returned here. It is infinite where a transition is forbidden: what is lost of a
    state that cannot be entered again may be all that later evidence speaks for.
    """
    n_states, limits = transition.shape[1], jnp.finfo(transition.dtype)
    return length * n_states * (n_states + 2) * (limits.tiny / limits.eps) / jnp.min(transition)


def weighted_sum(weights: Any, parts: jax.Array) -> jax.Array:
    """`sum_w weights[w] parts[w]` in float64, whatever comes in and wherever it runs."""
    with jax.enable_x64(True):
        # No matrix product: under `jax.vmap` its type would be chosen anew, outside of this scope.
        by = jnp.asarray(weights).astype(jnp.float64).reshape(-1, *[1] * (parts.ndim - 1))
        return jnp.sum(by * parts.astype(jnp.float64), axis=0)
