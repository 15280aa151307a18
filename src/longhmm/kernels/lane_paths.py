"""Paths of states drawn from their posterior inside one program: forward filtering, backward sampling (F7).

Where the C++ kernel can be called it draws (see `compiled_paths`); otherwise, and where chunks do not forget what came
before them, JAX does: within a chunk a path is drawn, with the same random numbers, for every state that may follow
the chunk; walking from chunk to chunk then picks the one that does. Nothing is guessed: edges are carried.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from longhmm.kernels import native
from longhmm.kernels.compiled_paths import draw_path
from longhmm.kernels.lane_edges import carried_edges
from longhmm.kernels.lanes import LaneBlock, Params, Program
from longhmm.kernels.resident import Inputs
from longhmm.messages.forward import filter_messages
from longhmm.messages.path_sampling import sample_paths


class DrawnPaths(NamedTuple):
    """One path through all data, with its counts.

    Attributes:
        states: `(n_blocks, n, lanes)`, the state at every time; meaningless beyond the end of a chunk.
        first: `(K,)`, number of sequences that begin in each state.
        transitions: `(K, K)`, number of steps from i to j.
        log_likelihood: `log p(y)`, the states summed out, at the parameters of the draw.
    """

    states: jax.Array
    first: jax.Array
    transitions: jax.Array
    log_likelihood: jax.Array


def draw_paths(program: Program, inputs: Inputs, params: Params, key: jax.Array) -> DrawnPaths:
    """A draw from `P(x | all y)`."""
    if inputs.chunks is None or program.model.n_states > native.MOST_STATES:
        return _draw_in_lanes(program, inputs.data, params, key)
    assert program.form is not None
    flat = draw_path(program.model, program.form, inputs.chunks, params, key)
    rows = inputs.lane_rows[:, None, :] + jnp.arange(program.lanes.chunk_length)[:, None]
    states = flat.states[jnp.minimum(rows, flat.states.shape[0] - 1)].astype(jnp.int32)
    drawn = DrawnPaths(states, flat.first, flat.transitions, flat.log_likelihood)

    # A loop of one turn at most: unlike a condition, it costs nothing where chains share a program and none needs it.
    def again(carry: tuple[jax.Array, DrawnPaths]) -> tuple[jax.Array, DrawnPaths]:
        return jnp.asarray(True), _draw_in_lanes(program, inputs.data, params, key)

    return jax.lax.while_loop(lambda carry: ~carry[0], again, (flat.sound, drawn))[1]


def _draw_in_lanes(program: Program, data: LaneBlock | None, params: Params, key: jax.Array) -> DrawnPaths:
    n_states, n_blocks = program.model.n_states, program.lanes.n_blocks
    transition = params["transition"]
    before = jnp.zeros((n_blocks, n_states, program.lanes.lanes), program.dtype)
    if program.lanes.reach:
        before = carried_edges(program, data, params).before
    followers = jnp.concatenate([jnp.arange(n_states), jnp.full(1, -1)]).astype(jnp.int32)

    def one_block(following: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, DrawnPaths]:
        index, log_before = inputs
        block = program.block(data, index)
        logs = jnp.swapaxes(program.log_likelihoods(params, block), 1, 2)[:, :, 1:-1]
        at_start, length, at_end = block.at_start[1:-1], block.length[1:-1], block.at_start[2:]
        filtered = filter_messages(log_before, at_start, params["initial"], transition, logs)
        uniforms = jax.random.uniform(jax.random.fold_in(key, index), (logs.shape[0], logs.shape[2]), logs.dtype)
        # (K + 1, n, lanes); the last for a chunk that ends its sequence, whose padding is drawn as if time went on.
        candidates = jax.vmap(
            lambda state: sample_paths(filtered.log_alpha, transition, uniforms, jnp.full(length.shape, state))
        )(followers)

        def one_chunk(state: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            firsts, ends = chunk
            follower = jnp.where(ends, -1, state)
            return firsts[follower], follower

        first_state, after = jax.lax.scan(one_chunk, following, (candidates[:, 0].T, at_end), reverse=True)
        states = jnp.take_along_axis(candidates, (after % (n_states + 1))[None, None, :], axis=0)[0]
        inside = jnp.arange(logs.shape[0])[:, None] < length
        return first_state, DrawnPaths(
            states,
            jnp.sum(_indicators(states[0], n_states, at_start & (length > 0)), axis=0),
            _count(states[:-1], states[1:], n_states, inside[1:]) + _count(states[-1], after, n_states, after >= 0),
            jnp.sum(jnp.where(inside, filtered.log_normaliser, 0.0)),
        )

    nothing = jnp.asarray(-1, jnp.int32)
    _, paths = jax.lax.scan(one_block, nothing, (jnp.arange(n_blocks), before), reverse=True)
    return DrawnPaths(paths.states, *(jnp.sum(part, axis=0) for part in paths[1:]))


def _indicators(states: jax.Array, n_states: int, counted: jax.Array) -> jax.Array:
    return jax.nn.one_hot(states, n_states, dtype=jnp.result_type(float)) * counted[..., None]


def _count(origin: jax.Array, target: jax.Array, n_states: int, counted: jax.Array) -> jax.Array:
    """Number of pairs of each kind among those counted."""
    pairs = jnp.where(counted, origin * n_states + target, n_states**2)
    return jnp.bincount(pairs.ravel(), length=n_states**2 + 1)[:-1].reshape(n_states, n_states).astype(float)
