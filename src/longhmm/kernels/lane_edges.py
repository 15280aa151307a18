"""Messages at the edges of chunks that lie side by side, found inside one program: guessed, proved, or carried.

Edges are guessed from neighbouring rows and the guess is proved, as `proofs` explains: first from a short reach, then
from a whole chunk. Where both fail, the map that each chunk applies to messages is computed for every state, and
messages are carried through these maps from end to end, which needs no guess.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.kernels.edges import Edges, guess, log_filtered
from longhmm.kernels.lanes import LaneBlock, Params, Program
from longhmm.messages.backward import backward_message
from longhmm.messages.forward import filter_messages
from longhmm.messages.scaling import log_sum_exp, safe_log

SHORT, WHOLE_CHUNK, CARRIED = 0, 1, 2  # how edges are found, in the order in which it is tried


def guessed_edges(
    reach: int, level: jax.Array, initial: jax.Array, transition: jax.Array, logs: jax.Array, block: LaneBlock
) -> Edges:
    """Edges of the inner lanes from the last rows of the lane to the left and the first rows of the one to the right.

    Both are worked through in pieces of `reach` rows: one piece, or all of the chunk.
    """
    shape, n_pieces = (logs.shape[1], logs.shape[2] - 2), logs.shape[0] // reach
    law = jnp.log(guess(transition))
    left, right = logs[:, :, :-2], logs[:, :, 2:]

    def piece_of(part: jax.Array, piece: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(part, piece * reach, reach)

    def forward(piece: jax.Array, message: jax.Array) -> jax.Array:
        at_start = block.at_start[:-2] & (piece == 0)
        return log_filtered(message, at_start, initial, transition, piece_of(left, piece))[-1]

    def backward(count: jax.Array, message: jax.Array) -> jax.Array:
        message = backward_message(message, transition, piece_of(right, last - count))
        return jnp.where(jnp.all(jnp.isneginf(message), axis=0), 0.0, message)

    last = jnp.where(level == SHORT, 0, n_pieces - 1)
    before = jax.lax.fori_loop(n_pieces - 1 - last, n_pieces, forward, jnp.broadcast_to(law[:, None], shape))
    after = jax.lax.fori_loop(0, last + 1, backward, jnp.zeros(shape, logs.dtype))
    return Edges(before, jnp.where(block.at_start[2:], 0.0, after))


def carried_edges(program: Program, data: LaneBlock | None, params: Params) -> Edges:
    """All edges, `(n_blocks, K, lanes)`, without a guess: messages carried through the map of every chunk."""
    transition, n_states = params["transition"], program.model.n_states

    def maps(index: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        block = program.block(data, index)
        logs = jnp.swapaxes(program.log_likelihoods(params, block), 1, 2)[:, :, 1:-1]
        at_start = block.at_start[1:-1]

        def from_state(state: jax.Array) -> jax.Array:
            # Known to be in `state` before the chunk, or at its first time where it begins its sequence.
            law = (jnp.arange(n_states) == state).astype(logs.dtype)
            before = jnp.broadcast_to(safe_log(law)[:, None], (n_states, logs.shape[2]))
            filtered = filter_messages(before, at_start, law, transition, logs)
            return filtered.log_alpha[-1] + jnp.sum(filtered.log_normaliser, axis=0)

        found = jax.lax.map(from_state, jnp.arange(n_states))
        return jnp.moveaxis(found, 2, 0), at_start, block.at_start[2:]

    log_maps, at_start, at_end = jax.lax.map(maps, jnp.arange(program.lanes.n_blocks))
    flat = (log_maps.reshape(-1, n_states, n_states), at_start.reshape(-1), at_end.reshape(-1))
    log_initial = safe_log(params["initial"])

    def right(carry: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        log_map, starts, _ = inputs
        law = log_sum_exp(jnp.where(starts, log_initial, carry)[:, None] + log_map, 0)
        total = log_sum_exp(law, 0)
        # After an impossible observation, ignorance: the pass itself finds that the likelihood is zero.
        return jnp.where(jnp.isfinite(total), law - total, -jnp.log(float(n_states))), carry

    def left(carry: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        log_map, _, ends = inputs
        after = jnp.where(ends, 0.0, carry)
        message = log_sum_exp(log_map + after, 1)
        peak = jnp.max(message)
        return jnp.where(jnp.isfinite(peak), message - peak, 0.0), after

    _, before = jax.lax.scan(right, jnp.full(n_states, -np.log(n_states), program.dtype), flat)
    _, after = jax.lax.scan(left, jnp.zeros(n_states, program.dtype), flat, reverse=True)
    shape = (program.lanes.n_blocks, program.lanes.lanes, n_states)
    return Edges(*(jnp.swapaxes(part.reshape(shape), 1, 2) for part in (before, after)))


# Proofs -----------------------------------------------------------------------------------------------------------


def moved_law(log_laws: jax.Array, transition: jax.Array) -> jax.Array:
    """Each law `(K, W)` one step on, largest entry 0: what is too small to matter is gone after the step."""
    moved = log_sum_exp(log_laws[:, None, :] + safe_log(transition)[:, :, None], 0)
    return moved - jnp.max(moved, axis=0)


def projective_gap(one: jax.Array, other: jax.Array) -> jax.Array:
    """Largest difference of log odds, `(W,)`, less what rounding explains; infinite where only one is impossible."""
    impossible = jnp.isneginf(one) & jnp.isneginf(other)
    gap = jnp.abs(one - other) - _rounding(one.dtype) * jnp.abs(one)
    return _or_infinite(jnp.max(jnp.where(impossible, 0.0, gap), axis=0))


def law_gap(one: jax.Array, other: jax.Array) -> jax.Array:
    """Total variation between laws given as log weights, `(W,)`, less what rounding explains."""
    distance = 0.5 * jnp.sum(jnp.abs(jax.nn.softmax(one, axis=0) - jax.nn.softmax(other, axis=0)), axis=0)
    size = jnp.max(jnp.where(jnp.isneginf(one), 0.0, jnp.abs(one)), axis=0)
    return _or_infinite(distance - _rounding(one.dtype) * size)


def _rounding(dtype: Any) -> float:
    return 64 * float(jnp.finfo(dtype).eps)


def _or_infinite(gap: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(gap), jnp.inf, gap)
