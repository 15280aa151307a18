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


def forgets_nothing(transition: jax.Array) -> jax.Array:
    """Whether a linear recursion is safe: every state can be reached from every other, far above underflow.

    What underflows is at most `tiny` per state and step. While every entry of `A` is far larger, that is less than
    rounding; otherwise a lost path might have been the only one that goes on.
    """
    limits = jnp.finfo(transition.dtype)
    return jnp.min(transition) > transition.shape[0] * limits.tiny / limits.eps


def holds_all(transition: jax.Array, log_before: jax.Array, faintest: jax.Array) -> jax.Array:
    """Whether linear forward messages `(W,)` hold every state that can be reached, with all its digits.

    Where some transitions are impossible, what underflows may be the only way on, whatever the rows of the window say.
    `log_before` `(K, W)` is the message before the window, `faintest` `(time, W)` as `scaled_forward` gives it.
    """
    limits = jnp.finfo(transition.dtype)
    least = limits.tiny / limits.eps**2
    easy = jnp.all((transition == 0) | (transition > limits.eps**2))  # what is possible does not underflow in a step
    begun = jnp.all(jnp.isneginf(log_before) | (log_before > jnp.log(least)), axis=0)
    return forgets_nothing(transition) | (easy & begun & jnp.all(faintest > least, axis=0))
