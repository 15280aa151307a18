"""Filtering: what is known of the state at each time from the observations so far."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from longhmm.inference.scaling import (
    first_law,
    least_normaliser,
    log_first_law,
    log_sum_exp,
    peak_scaled,
    predict,
    safe_log,
)


class Filtered(NamedTuple):
    """The outcome of a forward pass over a batch of windows.

    Attributes:
        log_alpha: `(time, K, W)`, the logarithm of `P(x_t = k | y_0 .. y_t)`.
        log_normaliser: `(time, W)`, `log p(y_t | y_0 .. y_{t-1})`; its sum over time is the log likelihood.
        impossible_at: `(W,)`, the first time whose observation no reachable state allows, or -1.
    """

    log_alpha: jax.Array
    log_normaliser: jax.Array
    impossible_at: jax.Array


def first_impossible(log_normaliser: jax.Array) -> jax.Array:
    """The first time, per window, at which the normaliser is zero; -1 where there is none."""
    zero = jnp.isneginf(log_normaliser)
    return jnp.where(zero.any(axis=0), jnp.argmax(zero, axis=0), -1).astype(jnp.int32)


def scaled_forward(first: jax.Array, transition: jax.Array, likelihoods: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The forward recursion on peak-scaled likelihoods: `(alpha, normaliser)` (F3, F4)."""

    def step(predicted: jax.Array, likelihood: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        joint = predicted * likelihood
        normaliser = jnp.sum(joint, axis=0)
        alpha = joint / jnp.where(normaliser > 0, normaliser, 1.0)
        return predict(transition, alpha), (alpha, normaliser)

    return jax.lax.scan(step, first, likelihoods)[1]


def log_forward(
    log_first: jax.Array, log_transition: jax.Array, log_likelihoods: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The same recursion on logarithms: slower, and right however far apart the likelihoods are."""

    def step(log_predicted: jax.Array, log_likelihood: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        joint = log_predicted + log_likelihood
        normaliser = log_sum_exp(joint, 0)
        log_alpha = joint - jnp.where(jnp.isneginf(normaliser), 0.0, normaliser)
        return log_sum_exp(log_alpha[:, None, :] + log_transition[:, :, None], 0), (log_alpha, normaliser)

    return jax.lax.scan(step, log_first, log_likelihoods)[1]


def filter_messages(
    log_before: jax.Array,
    at_start: jax.Array,
    initial: jax.Array,
    transition: jax.Array,
    log_likelihoods: jax.Array,
) -> Filtered:
    """Run the forward recursion over a batch of windows.

    Args:
        log_before: `(K, W)`, logarithm of the law of the state just before each window's first time.
        at_start: `(W,)`, True where the window begins at the first observation of its sequence.
        initial: `(K,)`, law of the state of a sequence's first observation.
        transition: `(K, K)`, `A[i, j] = P(x_t = j | x_{t-1} = i)`.
        log_likelihoods: `(time, K, W)`, `log p(y_t | x_t = k)`; 0 where the observation is missing or padding.
    """

    likelihoods, peak = peak_scaled(log_likelihoods)
    first = first_law(log_before, at_start, initial, transition)
    alpha, normaliser = scaled_forward(first, transition, likelihoods)

    def logarithmic() -> tuple[jax.Array, jax.Array]:
        log_transition = safe_log(transition)
        log_first = log_first_law(log_before, at_start, initial, log_transition)
        return log_forward(log_first, log_transition, log_likelihoods)

    log_alpha, log_normaliser = jax.lax.cond(
        jnp.all(normaliser > least_normaliser(transition, len(log_likelihoods))),
        lambda: (safe_log(alpha), safe_log(normaliser) + peak),
        logarithmic,
    )
    return Filtered(log_alpha, log_normaliser, first_impossible(log_normaliser))
