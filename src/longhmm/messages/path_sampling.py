"""Paths of states drawn from their posterior: forward filtering, backward sampling."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from longhmm.messages.scaling import safe_log


def sample_paths(
    log_alpha: jax.Array,
    transition: jax.Array,
    uniforms: jax.Array,
    following: jax.Array,
    length: jax.Array | None = None,
) -> jax.Array:
    """Draw one path per window, backwards in time.

    `P(x_t = i | x_{t+1} = j, y_0 .. y_t)` is proportional to `alpha_t(i) A[i, j]` (F7). Equal uniforms with
    different `following` states give the map by which the chunks of a long sequence are joined.

    Args:
        log_alpha: `(time, K, W)`, logarithm of the filtered probabilities.
        transition: `(K, K)`, `A[i, j]`.
        uniforms: `(time, W)`, independent uniforms on [0, 1).
        following: `(W,)`, the state just after the window, or -1 where the sequence ends with the window.
        length: `(W,)`, times in each window, if not all; what comes after gets the state that follows.
    """
    log_transition = safe_log(transition)
    times = jnp.arange(log_alpha.shape[0])

    def step(state: jax.Array, inputs: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        log_filtered, uniform, time = inputs
        onward = log_transition[:, jnp.maximum(state, 0)]
        logits = log_filtered + jnp.where(state >= 0, onward, 0.0)
        peak = jnp.max(logits, axis=0)
        cumulative = jnp.cumsum(jnp.exp(logits - jnp.where(jnp.isneginf(peak), 0.0, peak)), axis=0)
        # Counting how many partial sums lie at or below the threshold can never choose a state of probability 0.
        chosen = jnp.sum(cumulative <= uniform * cumulative[-1], axis=0).astype(jnp.int32)
        chosen = jnp.minimum(chosen, log_filtered.shape[0] - 1)
        if length is not None:
            chosen = jnp.where(time < length, chosen, state)
        return chosen, chosen

    return jax.lax.scan(step, following.astype(jnp.int32), (log_alpha, uniforms, times), reverse=True)[1]
