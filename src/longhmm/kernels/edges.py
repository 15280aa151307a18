"""Messages at the edges of chunks: guessed from a short neighbourhood and proved, or carried from end to end.

An HMM forgets: the message that enters a chunk hardly depends on anything but the last few dozen observations. So
every chunk warms its edges up on its own neighbourhood, all chunks at once. That guess is then proved (`proofs.py`).
Where the proof fails, the neighbourhood grows, and in the end messages are carried through the whole sequence: what
every chunk does to any message is found for all chunks at once, and then applied to one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.kernels.blocks import Block
from longhmm.messages.backward import backward_message
from longhmm.messages.forward import filter_messages
from longhmm.messages.markov import stationary
from longhmm.messages.scaling import at_zero, log_sum_exp, safe_log

# Share of the uniform law in the law that a guess starts from. Then every state that is possible in truth is possible
# in the guess, and an observation that is impossible under the guess is so in truth.
UNIFORM_SHARE = 1e-3


class Edges(NamedTuple):
    """Logarithms of the messages at both edges of every chunk, `(K, W)` each."""

    before: Any
    after: Any


def chunk_log_likelihoods(log_likelihoods: jax.Array, rows: jax.Array) -> jax.Array:
    """Rows `(R, K)` placed into chunks, `(time, K, W)`; padding has likelihood 1."""
    n_states = log_likelihoods.shape[1]
    padded = jnp.concatenate([log_likelihoods, jnp.zeros((1, n_states), log_likelihoods.dtype)])
    return jnp.swapaxes(padded[rows], 1, 2)


def at_last_time(messages: jax.Array, length: jax.Array, otherwise: jax.Array) -> jax.Array:
    """`messages[length - 1]` of each lane, `(K, W)`; `otherwise` where the length is 0."""
    index = jnp.maximum(length - 1, 0)[None, None, :]
    picked = jnp.take_along_axis(messages, jnp.broadcast_to(index, (1, *messages.shape[1:])), axis=0)[0]
    return jnp.where(length[None, :] > 0, picked, otherwise)


# A forward recursion: (log_before, at_start, initial, transition, log_likelihoods) to log messages (time, K, W), and
# the logarithm of what they were divided by at each time, (time, W).
Forward = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def log_filtered(
    log_before: jax.Array, at_start: jax.Array, initial: jax.Array, transition: jax.Array, log_likelihoods: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Filtered laws as log messages, and their log normalisers.

    From an impossible observation on the laws are ignorance: it is reported elsewhere.
    """
    filtered = filter_messages(log_before, at_start, initial, transition, log_likelihoods)
    times = jnp.arange(log_likelihoods.shape[0])[:, None]
    lost = (filtered.impossible_at >= 0) & (times >= filtered.impossible_at)
    messages = jnp.where(lost[:, None, :], -jnp.log(float(transition.shape[0])), filtered.log_alpha)
    return messages, filtered.log_normaliser


def guess(transition: jax.Array) -> jax.Array:
    """The law `(K,)` that a guess starts from."""
    return (1 - UNIFORM_SHARE) * stationary(transition) + UNIFORM_SHARE / transition.shape[0]


def guessed_before(
    forward: Forward, initial: jax.Array, transition: jax.Array, log_likelihoods: jax.Array, block: Block
) -> jax.Array:
    """Message before each chunk from the rows to its left, started from (nearly) the stationary law."""
    start = jnp.broadcast_to(jnp.log(guess(transition))[:, None], (transition.shape[0], block.length.shape[0]))
    logs = chunk_log_likelihoods(log_likelihoods, block.left)
    messages, _ = forward(start, block.left_at_start, initial, transition, logs)
    return at_last_time(messages, block.left_length, start)


def guessed_after(transition: jax.Array, log_likelihoods: jax.Array, block: Block) -> tuple[jax.Array, jax.Array]:
    """Backward message at the end of each chunk from the rows to its right, `(K, W)`; and the endings, `(K, K)`.

    The endings tell how far the last chunk's message depends on what lies beyond those rows: at `[i, k]` the logarithm,
    up to a constant for each k, of `p(the rows, x = k at the last of them | x = i at the chunk's end)`. They are zeros
    where the rows end their sequence, so that nothing lies beyond.
    """
    n_states, n_chunks = transition.shape[0], block.length.shape[0]
    dtype = log_likelihoods.dtype
    last = jnp.broadcast_to(block.right[:, -1:], (block.right.shape[0], n_states))
    beyond = jnp.concatenate([jnp.zeros((n_states, n_chunks), dtype), safe_log(jnp.eye(n_states, dtype=dtype))], axis=1)
    rows = jnp.concatenate([block.right, last], axis=1)
    messages = backward_message(beyond, transition, chunk_log_likelihoods(log_likelihoods, rows))
    endings = jnp.where(block.right_at_end[-1], 0.0, messages[:, n_chunks:])
    return or_ignorance(messages[:, :n_chunks]), endings


def transfers(forward: Forward, at_start: jax.Array, transition: jax.Array, log_likelihoods: jax.Array) -> jax.Array:
    """What each chunk does to any message: at `[w, i, j]` the log weight of all its paths (of the best one, by the
    recursion of best paths) from state i just before it to state j at its last time, `(W, K, K)`.

    Where a chunk begins its sequence, state i is the one at its first time.
    """
    n_states = transition.shape[0]

    def from_state(state: jax.Array) -> jax.Array:
        law = (jnp.arange(n_states) == state).astype(log_likelihoods.dtype)
        before = jnp.broadcast_to(safe_log(law)[:, None], (n_states, log_likelihoods.shape[2]))
        messages, gains = forward(before, at_start, law, transition, log_likelihoods)
        return messages[-1] + jnp.sum(gains, axis=0)

    # One at a time: all at once would multiply the memory of a block by K.
    return jnp.moveaxis(jax.lax.map(from_state, jnp.arange(n_states)), 2, 0)


@partial(jax.jit, static_argnames=("best",))
def carried_before(
    carry: jax.Array, initial: jax.Array, transfer: jax.Array, at_start: jax.Array, *, best: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Messages before consecutive chunks, `(K, W)`, carried through their `transfers` from `carry` `(K,)`, and the one
    behind them; no guess is needed. `best`: scores of best paths.

    The last chunk of a sequence may be short; what its padding makes of the message goes nowhere.
    """
    log_initial = safe_log(initial)

    def step(carry: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        transfer, starts = inputs
        onward = jnp.where(starts, log_initial, carry)[:, None] + transfer
        message = jnp.max(onward, axis=0) if best else log_sum_exp(onward, 0)
        scale = jnp.max(message) if best else log_sum_exp(message, 0)
        # After an impossible observation, ignorance: the pass itself finds that the likelihood is zero.
        return jnp.where(jnp.isfinite(scale), message - scale, -jnp.log(float(len(carry)))), carry

    last, before = jax.lax.scan(step, carry, (transfer, at_start))
    return before.T, last


@jax.jit
def carried_after(carry: jax.Array, transfer: jax.Array, at_end: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Backward messages after consecutive chunks, `(K, W)`, carried from the right; and the one before them."""

    def step(carry: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        transfer, ends = inputs
        after = jnp.where(ends, 0.0, carry)
        # A short chunk ends its sequence: its padding has likelihood 1 and leaves a message of ones unchanged.
        return or_ignorance(at_zero(log_sum_exp(transfer + after, 1))[0]), after

    first, after = jax.lax.scan(step, carry, (transfer, at_end), reverse=True)
    return after.T, first


def or_ignorance(log_message: jax.Array) -> jax.Array:
    """Zeros in place of a message that nothing can have caused, which is reported elsewhere."""
    return jnp.where(jnp.all(jnp.isneginf(log_message), axis=0), 0.0, log_message)
