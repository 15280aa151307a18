"""The backward message alone: what later observations say of a state."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from longhmm.inference.scaling import at_zero, least_normaliser, log_sum_exp, peak_scaled, pull_back, safe_log


def backward_message(log_after: jax.Array, transition: jax.Array, log_likelihoods: jax.Array) -> jax.Array:
    """Logarithm, largest entry 0, of `p(y_0 .. y_last and after | x_{-1} = k)`, `(K, W)` (F5).

    Minus infinity in every entry where no state can have produced what follows.

    Args:
        log_after: `(K, W)`, the same message at the window's last time, up to a constant.
        transition: `(K, K)`, `A[i, j]`.
        log_likelihoods: `(time, K, W)`, 0 where missing or padding.
    """

    likelihoods, _ = peak_scaled(log_likelihoods)
    log_after, _ = at_zero(log_after)

    def linear(beta: jax.Array, likelihood: jax.Array) -> tuple[jax.Array, jax.Array]:
        beta = pull_back(transition, likelihood * beta)
        peak = jnp.max(beta, axis=0)
        return beta / jnp.where(peak > 0, peak, 1.0), peak

    beta, peaks = jax.lax.scan(linear, jnp.exp(log_after), likelihoods, reverse=True)

    def logarithmic() -> jax.Array:
        log_transition = safe_log(transition)[:, :, None]

        def step(log_beta: jax.Array, log_likelihood: jax.Array) -> tuple[jax.Array, None]:
            return at_zero(log_sum_exp(log_transition + (log_likelihood + log_beta)[None, :, :], 1))[0], None

        return jax.lax.scan(step, log_after, log_likelihoods, reverse=True)[0]

    # An entry is at least m times the peak, with m the least entry of `A`: the same bound as for forward messages.
    sound = jnp.all(peaks > least_normaliser(transition, len(log_likelihoods)))
    return jax.lax.cond(sound, lambda: safe_log(beta), logarithmic)
