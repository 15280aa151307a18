"""Messages at the edges of chunks that lie side by side, found inside one program: guessed, proved, or carried.

Edges are guessed from neighbouring rows and the guess is proved, as `proofs` explains: first from a short reach, then
from a whole chunk. Where both fail, messages are carried from end to end, which needs no guess.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.kernels.edges import (
    Edges,
    carried_after,
    carried_before,
    guess,
    log_filtered,
    or_ignorance,
    transfers,
)
from longhmm.kernels.lanes import LaneBlock, Params, Program
from longhmm.messages.backward import backward_message

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
        return log_filtered(message, at_start, initial, transition, piece_of(left, piece))[0][-1]

    def backward(count: jax.Array, message: jax.Array) -> jax.Array:
        return or_ignorance(backward_message(message, transition, piece_of(right, last - count)))

    last = jnp.where(level == SHORT, 0, n_pieces - 1)
    before = jax.lax.fori_loop(n_pieces - 1 - last, n_pieces, forward, jnp.broadcast_to(law[:, None], shape))
    after = jax.lax.fori_loop(0, last + 1, backward, jnp.zeros(shape, logs.dtype))
    return Edges(before, jnp.where(block.at_start[2:], 0.0, after))


def carried_edges(program: Program, data: LaneBlock | None, params: Params) -> Edges:
    """All edges, `(n_blocks, K, lanes)`, without a guess: messages carried through every chunk."""
    n_states, layout = program.model.n_states, program.lanes

    def one_block(index: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        block = program.block(data, index)
        own = block.own()
        logs = jnp.swapaxes(program.log_likelihoods(params, own), 1, 2)
        return transfers(log_filtered, own.at_start, params["transition"], logs), own.at_start, block.at_start[2:]

    found = jax.lax.map(one_block, jnp.arange(layout.n_blocks))
    transfer, at_start, at_end = (part.reshape(-1, *part.shape[2:]) for part in found)
    nothing = jnp.full(n_states, -np.log(n_states), program.dtype)
    before, _ = carried_before(nothing, params["initial"], transfer, at_start)
    after, _ = carried_after(jnp.zeros_like(nothing), transfer, at_end)
    shape = (n_states, layout.n_blocks, layout.lanes)
    return Edges(*(jnp.moveaxis(part.reshape(shape), 0, 1) for part in (before, after)))
