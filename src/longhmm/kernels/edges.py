"""Messages at the edges of chunks: guessed from a short neighbourhood and proved, or carried from end to end.

An HMM forgets: the message that enters a chunk hardly depends on anything but the last few dozen observations. So
every chunk warms its edges up on its own neighbourhood, all chunks at once. That guess is then *proved*: the message
that leaves a chunk must be the one its successor started from. Where the proof fails, the neighbourhood grows, and in
the end messages are carried through the whole sequence, one chunk after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.kernels.blocks import Block, Plan
from longhmm.messages.backward import backward_message
from longhmm.messages.forward import filter_messages
from longhmm.messages.markov import stationary
from longhmm.messages.scaling import safe_log

REACHES = (64, 512)  # neighbourhoods tried before messages are carried from end to end
TOLERANCE = 1e-11  # total variation between two messages that count as the same


class Edges(NamedTuple):
    """Logarithms of the messages at both edges of every chunk, `(K, W)` each."""

    before: jax.Array
    after: jax.Array


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


def guessed_before(
    forward: Forward, initial: jax.Array, transition: jax.Array, log_likelihoods: jax.Array, block: Block
) -> jax.Array:
    """Message before each chunk from the rows to its left, started from the stationary law."""
    law = safe_log(stationary(transition))[:, None]
    start = jnp.broadcast_to(law, (law.shape[0], block.length.shape[0]))
    logs = chunk_log_likelihoods(log_likelihoods, block.left)
    return at_last_time(forward(start, block.left_at_start, initial, transition, logs), block.left_length, start)


def guessed_after(transition: jax.Array, log_likelihoods: jax.Array, block: Block) -> jax.Array:
    """Backward message at the end of each chunk from the rows to its right."""
    nothing = jnp.zeros((transition.shape[0], block.length.shape[0]), log_likelihoods.dtype)
    return backward_message(nothing, transition, chunk_log_likelihoods(log_likelihoods, block.right))


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
        return backward_message(log_after[:, None], transition, logs[:, :, None])[:, 0], log_after

    inputs = (jnp.moveaxis(chunks, 2, 0), block.at_end)
    first, after = jax.lax.scan(step, carry, inputs, reverse=True)
    return after.T, first


def normalised(logs: np.ndarray) -> np.ndarray:
    """Log messages as probabilities over the first axis."""
    with np.errstate(invalid="ignore"):
        peak = logs.max(axis=0)
        weights = np.exp(logs - np.where(np.isfinite(peak), peak, 0.0))
        return weights / weights.sum(axis=0)


def disagreement(one: np.ndarray, other: np.ndarray) -> float:
    """Largest total variation between corresponding columns of two sets of log messages; infinite for NaN."""
    if one.shape[1] == 0:
        return 0.0
    distance = 0.5 * np.abs(normalised(one) - normalised(other)).sum(axis=0)
    return float(np.where(np.isnan(distance), np.inf, distance).max())


def pair(joints: np.ndarray, previous: Any, run: Any, left: str, right: str) -> tuple[np.ndarray, np.ndarray]:
    """Messages on both sides of every joint: field `left` of the earlier chunk and field `right` of the later one."""
    count = len(joints)
    earlier, later = getattr(run, left)[:, : count - 1], getattr(run, right)[:, :count]
    if previous is None:
        joints, later = joints[1:], later[:, 1:]
    else:
        earlier = np.concatenate([getattr(previous, left)[:, -1:], earlier], axis=1)
    return earlier[:, joints], later[:, joints]


def proved_blocks(
    plan: Plan,
    run: Callable[[int, int], Any],
    agree: Callable[[int, Any, Any], bool],
    carried: Callable[[int], Iterator[tuple[int, int, Any]]],
) -> Iterator[tuple[int, int, Any]]:
    """Run every block, in order, as `(index, reach, outcome)`, each proved against both neighbours before it goes out.

    `run(index, reach)` guesses the edges from `reach` rows; `agree(index, previous, outcome)` proves them;
    `carried(begin)` does the rest of the blocks from `begin` without guessing.
    """
    settled = None  # the last outcome that went out
    pending: tuple[int, int, Any] | None = None  # proved on its left, not yet on its right
    index = attempt = 0
    while index < plan.n_blocks and attempt < len(REACHES):
        outcome = run(index, REACHES[attempt])
        if agree(index, settled if pending is None else pending[2], outcome):
            if pending is not None:
                settled = pending[2]
                yield pending
            pending = (index, REACHES[attempt], outcome)
            index += 1
        else:
            # The block before is redone too: its right edge may be the one that is wrong.
            attempt += 1
            if pending is not None:
                index, pending = pending[0], None
    if index < plan.n_blocks:
        yield from carried(index)
    elif pending is not None:
        yield pending
