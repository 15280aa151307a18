"""Recursions on one operator per row, in log space: matrices that vary, emissions that couple with transitions.

`M_t(i, j) = log p(x_t = j, y_t | x_{t-1} = i)` holds all that a row says, so that filter, smoother, best path and
backward sampling are a line each, and exact whatever underflows elsewhere. Where one matrix serves all rows the other
files of this folder do the same with a fraction of the work.

Arrays are shaped (time, from, to, chunk).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from longhmm.inference.scaling import at_zero, log_sum_exp, safe_log


class Smoothed(NamedTuple):
    """The outcome of both recursions over W chunks.

    Attributes:
        pairs: `(time, K, K, W)`, `P(x_{t-1} = i, x_t = j | all y of the chunk)`.
        log_normaliser: `(time, W)`, `log p(y_t | y_0 .. y_{t-1})`.
        log_forward: `(time + 1, K, W)`, filtered distributions; the first is the one before the chunk.
        log_backward: `(time + 1, K, W)`, `log p(y_t .. | x_{t-1} = k)` up to a constant; the last is the one behind it.
        impossible_at: `(W,)`, the first time that no reachable state allows, or -1.
    """

    pairs: jax.Array
    log_normaliser: jax.Array
    log_forward: jax.Array
    log_backward: jax.Array
    impossible_at: jax.Array


def opening(operators: jax.Array, log_initial: jax.Array, log_likelihood: jax.Array, opens: jax.Array) -> jax.Array:
    """Operators whose first row, where a chunk opens its sequence, leads from any state to the initial distribution."""
    first = (log_initial[:, None] + log_likelihood)[None, :, :]
    return operators.at[0].set(jnp.where(opens, first, operators[0]))


def filtered(log_before: jax.Array, operators: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log distributions `(time + 1, K, W)` given the rows so far, and log normalisers `(time, W)` (F3)."""

    def step(message: jax.Array, operator: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        joint = log_sum_exp(message[:, None, :] + operator, 0)
        normaliser = log_sum_exp(joint, 0)
        message = joint - jnp.where(jnp.isneginf(normaliser), 0.0, normaliser)
        return message, (message, normaliser)

    _, (messages, normalisers) = jax.lax.scan(step, log_before, operators)
    return jnp.concatenate([log_before[None], messages]), normalisers


def smoothed(log_before: jax.Array, log_after: jax.Array, operators: jax.Array) -> Smoothed:
    """Both recursions (F3, F5)."""
    forward, normalisers = filtered(log_before, operators)
    impossible = jnp.isneginf(normalisers)
    found = jnp.any(impossible, axis=0)

    def step(message: jax.Array, operator: jax.Array) -> tuple[jax.Array, jax.Array]:
        return at_zero(log_sum_exp(operator + message[None, :, :], 1))[0], message

    entering, later = jax.lax.scan(step, log_after, operators, reverse=True)
    joint = forward[:-1, :, None, :] + operators + later[:, None, :, :]
    flat = joint.reshape(joint.shape[0], -1, joint.shape[-1])
    pairs = jax.nn.softmax(jnp.where(found, 0.0, flat), axis=1).reshape(joint.shape)
    return Smoothed(
        jnp.where(found, 0.0, pairs),
        normalisers,
        forward,
        jnp.concatenate([entering[None], later]),
        jnp.where(found, jnp.argmax(impossible, axis=0), -1).astype(jnp.int32),
    )


def best_scores(log_before: jax.Array, operators: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Scores `(time + 1, K, W)` of the best path into each state, the best at 0 and the first ones those before the
    chunk; by how much they were moved there, `(time, W)`; and `origins[t, j, w]`, the state before time t."""

    def step(scores: jax.Array, operator: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        onward = scores[:, None, :] + operator
        scores, peak = at_zero(jnp.max(onward, axis=0))
        return scores, (scores, peak, jnp.argmax(onward, axis=0).astype(jnp.int32))

    _, (scores, peaks, origins) = jax.lax.scan(step, log_before, operators)
    return jnp.concatenate([log_before[None], scores]), peaks, origins


def drawn_origins(log_forward: jax.Array, operators: jax.Array, uniforms: jax.Array) -> jax.Array:
    """`origins[t, j, w]`: the state before time t, drawn in proportion to `alpha(i) exp M_t(i, j)` for every j (F7).

    `uniforms` `(time, W)`: one number for all j.
    """
    weights = log_forward[:-1, :, None, :] + operators
    peak = jnp.max(weights, axis=1, keepdims=True)
    cumulative = jnp.cumsum(jnp.exp(weights - jnp.where(jnp.isneginf(peak), 0.0, peak)), axis=1)
    below = cumulative <= uniforms[:, None, None, :] * cumulative[:, -1:]
    # Counting partial sums at or below the threshold can never choose a state of probability 0.
    return jnp.minimum(jnp.sum(below, axis=1), operators.shape[1] - 1).astype(jnp.int32)


def log_operators(matrices: jax.Array, log_likelihoods: jax.Array) -> jax.Array:
    """`(time, K, K, W)` from matrices `(K, K)` or `(time, K, K, W)` and log likelihoods `(time, K, W)` or of pairs."""
    log_matrices = safe_log(matrices)
    if matrices.ndim == 2:
        log_matrices = log_matrices[None, :, :, None]
    return log_matrices + (log_likelihoods if log_likelihoods.ndim == 4 else log_likelihoods[:, None])
