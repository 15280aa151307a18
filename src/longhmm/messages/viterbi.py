"""The most probable path of states, by max-plus recursion and back-tracking.

A long sequence is decoded in chunks. `viterbi_scores` carries the scores across a chunk and remembers where each
came from; `trace_back` walks one chunk back from a given state. Walking back from every state at once gives the
map (state after the chunk -> state before it) with which chunks are joined exactly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from longhmm.messages.scaling import at_zero, safe_log


def viterbi_scores(
    first: jax.Array, transition: jax.Array, log_likelihoods: jax.Array, length: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Scores of the best path to each state, over a batch of windows.

    Args:
        first: `(K, W)`, best log score of each state at the first time, before its observation.
        transition: `(K, K)`, `A[i, j]`.
        log_likelihoods: `(time, K, W)`.
        length: `(W,)`, times in each window; what comes after is padding, through which every path stands still.

    Returns:
        `(scores, shift, origins)`: scores `(K, W)` of the best paths that end in each state at the last time, with
        `shift` `(W,)` still to be added; `origins[t, k, w]`, the state at time t of the best path that is in state
        k at time t + 1 (for the last t: of the path that goes on to k after the window).
    """
    log_transition = safe_log(transition)
    depth, n_states = log_likelihoods.shape[:2]
    small = jnp.uint8 if n_states <= 256 else jnp.int32
    stay = jnp.arange(n_states)[:, None]

    def step(
        carry: tuple[jax.Array, jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array]:
        arriving, shift, held = carry
        log_likelihood, time = inputs
        # Only differences matter, so the best score is kept at zero: no growth over a hundred million steps.
        scores, peak = at_zero(arriving + log_likelihood)
        inside = time < length
        scores = jnp.where(inside, scores, held)
        shift = shift + jnp.where(inside, peak, 0.0)
        onward = scores[:, None, :] + log_transition[:, :, None]
        moves = (time + 1 < length) | (time + 1 == depth)
        return (jnp.max(onward, axis=0), shift, scores), jnp.where(moves, jnp.argmax(onward, axis=0), stay).astype(
            small
        )

    carry = (first, jnp.zeros(first.shape[1:], first.dtype), jnp.zeros_like(first))
    (_, shift, scores), origins = jax.lax.scan(step, carry, (log_likelihoods, jnp.arange(depth)))
    return scores, shift, origins


def viterbi_messages(
    log_before: jax.Array, at_start: jax.Array, initial: jax.Array, transition: jax.Array, log_likelihoods: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Scores of the best path to each state at every time, `(time, K, W)`, the best one at zero; and by how much they
    were moved there, `(time, W)`.

    Args:
        log_before: `(K, W)`, scores just before each window's first time.
        at_start: `(W,)`, True where the window begins at the first observation of its sequence.
        initial: `(K,)`, law of the state of a sequence's first observation.
        transition: `(K, K)`, `A[i, j]`.
        log_likelihoods: `(time, K, W)`.
    """
    log_transition = safe_log(transition)

    def step(arriving: jax.Array, log_likelihood: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        scores, peak = at_zero(arriving + log_likelihood)
        return jnp.max(scores[:, None, :] + log_transition[:, :, None], axis=0), (scores, peak)

    first = first_scores(log_before, at_start, initial, transition)
    return jax.lax.scan(step, first, log_likelihoods)[1]


def first_scores(log_before: jax.Array, at_start: jax.Array, initial: jax.Array, transition: jax.Array) -> jax.Array:
    """Best score of each state at a window's first time, before its observation, `(K, W)`."""
    moved = jnp.max(log_before[:, None, :] + safe_log(transition)[:, :, None], axis=0)
    return jnp.where(at_start[None, :], safe_log(initial)[:, None], moved)


def trace_back(origins: jax.Array, last: jax.Array) -> jax.Array:
    """States `(time, W)` of the best path that is in state `last[w]` at the window's last time."""
    n_states = origins.shape[1]
    lanes = jnp.arange(origins.shape[2])

    def step(state: jax.Array, origin: jax.Array) -> tuple[jax.Array, jax.Array]:
        previous = origin.astype(jnp.int32)[jnp.clip(state, 0, n_states - 1), lanes]
        return previous, previous

    _, path = jax.lax.scan(step, last.astype(jnp.int32), origins[:-1], reverse=True)
    return jnp.concatenate([path, last.astype(jnp.int32)[None]])
