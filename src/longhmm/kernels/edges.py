"""Messages at the edges of chunks: guessed from a short neighbourhood and proved, or carried from end to end.

An HMM forgets: the message that enters a chunk hardly depends on anything but the last few dozen observations. So
every chunk warms its edges up on its own neighbourhood, all chunks at once. That guess is then proved (`proofs.py`).
Where the proof fails, the neighbourhood grows, and in the end messages are carried through the whole sequence, one
chunk after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.kernels.blocks import Block
from longhmm.messages.backward import backward_message
from longhmm.messages.forward import filter_messages
from longhmm.messages.markov import stationary
from longhmm.messages.scaling import safe_log

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


# A forward recursion: (log_before, at_start, initial, transition, log_likelihoods) to log messages (time, K, W).
Forward = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def log_filtered(
    log_before: jax.Array, at_start: jax.Array, initial: jax.Array, transition: jax.Array, log_likelihoods: jax.Array
) -> jax.Array:
    """Filtered laws as log messages; ignorance from an impossible observation on, which is reported elsewhere."""
    filtered = filter_messages(log_before, at_start, initial, transition, log_likelihoods)
    times = jnp.arange(log_likelihoods.shape[0])[:, None]
    lost = (filtered.impossible_at >= 0) & (times >= filtered.impossible_at)
    return jnp.where(lost[:, None, :], -jnp.log(float(transition.shape[0])), filtered.log_alpha)


def guess(transition: jax.Array) -> jax.Array:
    """The law `(K,)` that a guess starts from."""
    return (1 - UNIFORM_SHARE) * stationary(transition) + UNIFORM_SHARE / transition.shape[0]


def guessed_before(
    forward: Forward, initial: jax.Array, transition: jax.Array, log_likelihoods: jax.Array, block: Block
) -> jax.Array:
    """Message before each chunk from the rows to its left, started from (nearly) the stationary law."""
    start = jnp.broadcast_to(jnp.log(guess(transition))[:, None], (transition.shape[0], block.length.shape[0]))
    logs = chunk_log_likelihoods(log_likelihoods, block.left)
    return at_last_time(forward(start, block.left_at_start, initial, transition, logs), block.left_length, start)


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
    return _or_ignorance(messages[:, :n_chunks]), endings


def carried_before(
    forward: Forward,
    carry: jax.Array,
    initial: jax.Array,
    transition: jax.Array,
    log_likelihoods: jax.Array,
    block: Block,
) -> tuple[jax.Array, jax.Array]:
    """Messages before every chunk of a block, carried through it from `carry` `(K,)`; and the one after the block."""
    chunks = chunk_log_likelihoods(log_likelihoods, block.rows)

    def step(log_before: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        logs, length, at_start = inputs
        messages = forward(log_before[:, None], at_start[None], initial, transition, logs[:, :, None])
        return at_last_time(messages, length[None], log_before[:, None])[:, 0], log_before

    last, before = jax.lax.scan(step, carry, (jnp.moveaxis(chunks, 2, 0), block.length, block.at_start))
    return before.T, last


def carried_after(
    carry: jax.Array, transition: jax.Array, log_likelihoods: jax.Array, block: Block
) -> tuple[jax.Array, jax.Array]:
    """Backward messages after every chunk, carried from the right; and the message before the block."""
    chunks = chunk_log_likelihoods(log_likelihoods, block.rows)

    def step(log_after: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        logs, at_end = inputs
        log_after = jnp.where(at_end, 0.0, log_after)
        # A short chunk ends its sequence: its padding has likelihood 1 and leaves a message of ones unchanged.
        return _or_ignorance(backward_message(log_after[:, None], transition, logs[:, :, None]))[:, 0], log_after

    inputs = (jnp.moveaxis(chunks, 2, 0), block.at_end)
    first, after = jax.lax.scan(step, carry, inputs, reverse=True)
    return after.T, first


def _or_ignorance(log_message: jax.Array) -> jax.Array:
    """Zeros in place of a message that nothing can have caused, which is reported elsewhere."""
    return jnp.where(jnp.all(jnp.isneginf(log_message), axis=0), 0.0, log_message)
