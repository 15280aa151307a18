"""Small pieces that every recursion shares: one step of prediction, and likelihoods made safe to exponentiate.

All arrays are shaped (time, state, window), windows last, so that one step works on many windows at once in
contiguous memory.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

# Up to this many states a broadcast product is faster than a call of the matrix library (measured on two cores).
BROADCAST_STATES = 16


def predict(transition: jax.Array, law: jax.Array) -> jax.Array:
    """Push `law[k, w] = P(x_{t-1} = k)` one step forward: `P(x_t = j) = sum_i law[i] A[i, j]` (F3)."""
    if transition.shape[0] <= BROADCAST_STATES:
        return jnp.sum(transition[:, :, None] * law[:, None, :], axis=0)
    return jnp.einsum("ij,iw->jw", transition, law)


def pull_back(transition: jax.Array, message: jax.Array) -> jax.Array:
    """Pull a backward message one step back: `sum_j A[i, j] message[j]` (F5)."""
    if transition.shape[0] <= BROADCAST_STATES:
        return jnp.sum(transition[:, :, None] * message[None, :, :], axis=1)
    return jnp.einsum("ij,jw->iw", transition, message)


def peak_scaled(log_likelihoods: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Likelihoods divided by the largest one at each time, and the logarithm of that largest one.

    Where every state is impossible (all minus infinity) the peak is 0, so that the likelihoods become zeros and
    never NaN.
    """
    peak = jnp.max(log_likelihoods, axis=1)
    peak = jax.lax.stop_gradient(jnp.where(jnp.isneginf(peak), 0.0, peak))
    return jnp.exp(log_likelihoods - peak[:, None, :]), peak


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


def at_zero(log_messages: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Messages `(K, ...)` with their largest entry moved to 0, and where it was; what is impossible stays so."""
    peak = jnp.max(log_messages, axis=0)
    return log_messages - jnp.where(jnp.isneginf(peak), 0.0, peak), peak


def first_law(log_before: jax.Array, at_start: jax.Array, initial: jax.Array, transition: jax.Array) -> jax.Array:
    """Law of the state at a window's first time, before its observation is seen.

    Windows at the true start of a sequence begin from `initial`; the others one step after `log_before`.
    """
    return jnp.where(at_start[None, :], initial[:, None], predict(transition, jnp.exp(log_before)))


def log_first_law(
    log_before: jax.Array, at_start: jax.Array, initial: jax.Array, log_transition: jax.Array
) -> jax.Array:
    """The logarithm of `first_law`, without passing through numbers that could underflow."""
    moved = log_sum_exp(log_before[:, None, :] + log_transition[:, :, None], 0)
    return jnp.where(at_start[None, :], safe_log(initial)[:, None], moved)


def least_normaliser(transition: jax.Array, length: int) -> jax.Array:
    """What the normaliser of every step must exceed for a linear recursion to have lost nothing that matters.

    Underflow takes at most `tiny` from each of the K + 2 products and sums behind an entry, so `(K + 2) tiny / c` once
    messages are divided by their normaliser c. With m the least entry of `A` no backward message, scaled so that
    `sum_k alpha beta = 1`, exceeds 1 / m: the likelihood changes by a relative `T K (K + 2) tiny / (m c)` at most, less
    than rounding if c exceeds what is returned here. It is infinite where a transition is forbidden: what is lost of a
    state that cannot be entered again may be all that later evidence speaks for.
    """
    n_states, limits = transition.shape[0], jnp.finfo(transition.dtype)
    return length * n_states * (n_states + 2) * (limits.tiny / limits.eps) / jnp.min(transition)
