"""Paths of states drawn from their posterior inside one program: forward filtering, backward sampling (F7).

Where the C++ kernel can be called it draws (see `compiled_paths`); otherwise, and where chunks do not forget what came
before them, JAX does, with the same random numbers and in the two sweeps of `path_pass`, here block by block. Nothing
is guessed: edges are carried.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from longhmm.kernels import native
from longhmm.kernels.compiled_paths import draw_path
from longhmm.kernels.lane_edges import carried_edges
from longhmm.kernels.lanes import Params, Program
from longhmm.kernels.path_blocks import DRAWN, Laws, first_states, row_uniforms
from longhmm.kernels.resident import Inputs


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
        return _draw_in_lanes(program, inputs, params, key)
    assert program.form is not None
    flat = draw_path(program.model, program.form, inputs.chunks, params, key)
    rows = inputs.lane_rows[:, None, :] + jnp.arange(program.lanes.chunk_length)[:, None]
    states = flat.states[jnp.minimum(rows, flat.states.shape[0] - 1)].astype(jnp.int32)
    drawn = DrawnPaths(states, flat.first, flat.transitions, flat.log_likelihood)

    # A loop of one turn at most: unlike a condition, it costs nothing where chains share a program and none needs it.
    def again(carry: tuple[jax.Array, DrawnPaths]) -> tuple[jax.Array, DrawnPaths]:
        return jnp.asarray(True), _draw_in_lanes(program, inputs, params, key)

    return jax.lax.while_loop(lambda carry: ~carry[0], again, (flat.sound, drawn))[1]


def _draw_in_lanes(program: Program, inputs: Inputs, params: Params, key: jax.Array) -> DrawnPaths:
    n_states, n_blocks = program.model.n_states, program.lanes.n_blocks
    laws, words = Laws(params["initial"], params["transition"]), jax.random.key_data(key).ravel()[:2]
    before = jnp.zeros((n_blocks, n_states, program.lanes.lanes), program.dtype)
    if program.lanes.reach:
        before = carried_edges(program, inputs.data, params).before

    def one_block(following: jax.Array, given: tuple[jax.Array, ...]) -> tuple[jax.Array, DrawnPaths]:
        index, log_before, first_rows = given
        block = program.block(inputs.data, index)
        own, at_end = block.own(), block.at_start[2:]
        logs = jnp.swapaxes(program.log_likelihoods(params, own), 1, 2)
        times = jnp.arange(logs.shape[0])[:, None]
        inside = times < own.length
        prepared = DRAWN.forward(laws, own, logs, log_before, row_uniforms(words, first_rows + times))

        def one_chunk(state: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            firsts, ends = chunk
            follower = jnp.where(ends, -1, state)
            return firsts[follower], follower

        maps = first_states(DRAWN, laws, prepared, own.length.shape)
        first_state, after = jax.lax.scan(one_chunk, following, (maps.T, at_end), reverse=True)
        states = DRAWN.back(laws, prepared, after)
        return first_state, DrawnPaths(
            states,
            jnp.sum(_indicators(states[0], n_states, own.at_start & (own.length > 0)), axis=0),
            _count(states[:-1], states[1:], n_states, inside[1:]) + _count(states[-1], after, n_states, after >= 0),
            jnp.sum(jnp.where(inside, prepared[0].log_normaliser, 0.0)),
        )

    nothing = jnp.asarray(-1, jnp.int32)
    _, paths = jax.lax.scan(one_block, nothing, (jnp.arange(n_blocks), before, inputs.lane_rows), reverse=True)
    return DrawnPaths(paths.states, *(jnp.sum(part, axis=0) for part in paths[1:]))


def _indicators(states: jax.Array, n_states: int, counted: jax.Array) -> jax.Array:
    return jax.nn.one_hot(states, n_states, dtype=jnp.result_type(float)) * counted[..., None]


def _count(origin: jax.Array, target: jax.Array, n_states: int, counted: jax.Array) -> jax.Array:
    """Number of pairs of each kind among those counted."""
    pairs = jnp.where(counted, origin * n_states + target, n_states**2)
    return jnp.bincount(pairs.ravel(), length=n_states**2 + 1)[:-1].reshape(n_states, n_states).astype(float)
