"""A path of states drawn from its posterior inside one program: forward filtering, backward sampling (F7).

Chunks start some rows early until the messages at their boundaries agree, else transfer operators make these exact; then
the maps of all chunks are followed from the end, and the chunks are filled in (see `ChunkPaths`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.evaluate import Params, Potentials, lower
from longhmm.backends.protocol import NO_STATE, Backend, ChunkPaths, PathsWanted, Uniforms
from longhmm.backends.resident import Data, Program
from longhmm.backends.stitch import (
    OVERLAPS,
    TOLERANCE,
    boundary_steps,
    inner_forward_gap,
    propagate_forward,
    transfer_operators,
    warm_start,
)
from longhmm.data.layout import Layout


class DrawnPath(NamedTuple):
    """One path through all data, with its counts.

    Attributes:
        states: `(n,)`, the state at every row.
        first: `(K,)`, number of sequences that begin in each state.
        transitions: `(K, K)`, number of steps from i to j.
        log_likelihood: `log p(y)` with the states summed out, without the base measure.
    """

    states: jax.Array
    first: jax.Array
    transitions: jax.Array
    log_likelihood: jax.Array


# All chunks once: messages before them, states behind them, whether in log space, what is wanted; and the steps between.
Run = Callable[[Layout, Any, Any, Any, PathsWanted], tuple[ChunkPaths, jax.Array]]


def draw_path(backend: Backend, potentials: Potentials, initial: Any, layout: Layout, key: jax.Array) -> DrawnPath:
    """A draw from `P(x | all y)`, under `jax.enable_x64(True)`.

    The cores of `layout` are all rows, in order. `left` holds the rows of the same sequence before each, as many as may
    be of use, `spans` zeros or the longest `left`, the longest core and 1.
    """
    uniforms = Uniforms(jax.random.key_data(key).ravel()[:2], 0)

    def run(chunks: Layout, forward: Any, following: Any, log_space: Any, wanted: PathsWanted) -> Any:
        found = find(backend, potentials, initial, chunks, forward, following, uniforms, log_space, wanted)
        return found, boundary_steps(potentials.lowered, potentials.transition, chunks)

    return _draw(run, layout, initial.shape[-1], potentials.lowered.rows.shape[0], backend.underflows)


def draw_resident(program: Program, data: Data, params: Params, key: jax.Array) -> DrawnPath:
    """The same for data that a program keeps: log likelihoods are evaluated in blocks of rows."""
    longest, fixed = program.overlaps[-1], program.backend.name != "cpp"
    spans = (longest, program.chunk, 1) if fixed else (0, 0, 0)
    layout = replace(data.layout, opens=(data.layout.left <= longest).astype(jnp.int32), spans=spans)
    if data.numbers is not None:
        potentials = lower(program.model, params, None, data.numbers)
        drawn = draw_path(program.backend, potentials, params["initial"], layout, key)
        return drawn._replace(log_likelihood=drawn.log_likelihood + data.log_base_measure)
    words = jax.random.key_data(key).ravel()[:2]
    small = jnp.uint8 if program.model.n_states <= NO_STATE else jnp.int32
    shape = (program.n_blocks, program.per_block)

    def run(chunks: Layout, forward: Any, following: Any, log_space: Any, wanted: PathsWanted) -> Any:
        wanted = wanted._replace(states=program.block_rows if wanted.states else 0)

        def one(states: jax.Array, inputs: Any) -> Any:
            index, part, ahead, behind = inputs
            rows, origin = program.block(data, index)
            potentials, part = lower(program.model, params, rows), part.moved(jnp.where(part.core > 0, origin, 0))
            uniforms = Uniforms(words, origin)
            found = find(
                program.backend, potentials, params["initial"], part, ahead, behind, uniforms, log_space, wanted
            )
            undefined = jnp.any(jnp.isnan(potentials.lowered.rows))
            found = found._replace(log_likelihood=jnp.where(undefined, jnp.nan, found.log_likelihood))
            if wanted.states:
                # Rows of neighbouring blocks are 0 here, and this block's rows were 0 so far.
                here = jax.lax.dynamic_slice_in_dim(states, origin, program.block_rows) + found.states
                states = jax.lax.dynamic_update_slice_in_dim(states, here, origin, 0)
            steps = boundary_steps(potentials.lowered, potentials.transition, part)
            return states, (found._replace(states=()), steps)

        blocks = jax.tree.map(lambda each: each.reshape(*shape, *each.shape[1:]), (chunks, forward, following))
        states = jnp.zeros(program.length if wanted.states else 0, small)
        states, (found, steps) = jax.lax.scan(one, states, (jnp.arange(program.n_blocks), *blocks))
        redone = jnp.sum(found.redone)
        found, steps = jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), (found._replace(redone=()), steps))
        return found._replace(states=states, redone=redone), steps

    return _draw(run, layout, program.model.n_states, program.length, program.backend.underflows)


def find(
    backend: Backend,
    potentials: Potentials,
    initial: Any,
    layout: Layout,
    forward: Any,
    following: Any,
    uniforms: Uniforms,
    log_space: Any,
    wanted: PathsWanted,
) -> ChunkPaths:
    """Paths through chunks at given potentials; without messages before them, they are warm-started."""
    return backend.paths(
        potentials.lowered, potentials.transition, initial, layout, forward, following, uniforms,
        start=warm_start(potentials.transition) if forward is None else None, log_space=log_space, wanted=wanted,
    )  # fmt: skip


def _draw(run: Run, layout: Layout, n_states: int, n_rows: int, underflows: bool) -> DrawnPath:
    lead, longest, behind = layout.spans
    overlaps = (lead,) if longest else OVERLAPS
    joined = layout.left > 0
    own = layout.trimmed(0, 1, (0, longest, behind))

    def messages(log_space: int) -> tuple[jax.Array, jax.Array]:
        """Messages before all chunks, and how far they disagree."""

        def attempt(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            level, _, _ = carry
            chunks = layout.trimmed(jnp.asarray(overlaps, jnp.int32)[level], 1, layout.spans)
            found, steps = run(chunks, None, None, log_space, PathsWanted(True, messages=True))
            gap = inner_forward_gap(steps, found.forward_out, found.forward_in, joined, False)
            return level + 1, found.forward_in, gap

        nothing = (jnp.zeros((), jnp.int32), jnp.zeros((layout.size, n_states)), jnp.asarray(jnp.inf))
        more = lambda carry: (carry[0] < len(overlaps)) & ~(carry[2] <= TOLERANCE)  # noqa: E731
        return jax.lax.while_loop(more, attempt, nothing)[1:]

    def propagate(_: Any) -> tuple[jax.Array, jax.Array]:
        def forward(before: jax.Array) -> tuple[jax.Array, jax.Array]:
            found, _ = run(own, before, None, 1, PathsWanted(True, messages=True))
            return found.log_likelihood, found.forward_out

        operators = transfer_operators(forward, n_states, layout.size, jnp.float64)
        return propagate_forward(jnp.full(n_states, -jnp.log(float(n_states))), operators)[0], jnp.zeros(())

    def attempt(log_space: int) -> tuple[jax.Array, DrawnPath]:
        before, gap = messages(log_space)
        if log_space:
            # A loop of one turn at most: unlike a condition, it costs nothing where chains share a program.
            before, gap = jax.lax.while_loop(lambda carry: ~(carry[1] <= TOLERANCE), propagate, (before, gap))
        found, _ = run(own, before, None, log_space, PathsWanted(True, messages=True, maps=True))

        def one_chunk(state: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
            firsts, ends = chunk
            follower = jnp.where(ends, -1, state)
            return firsts[follower].astype(jnp.int32), (follower, firsts[follower])

        ends = jnp.append(~joined[1:], True)
        _, (following, firsts) = jax.lax.scan(one_chunk, jnp.asarray(-1, jnp.int32), (found.maps, ends), reverse=True)
        filled, _ = run(own, before, following, log_space, PathsWanted(True, states=n_rows))
        sound = (gap <= TOLERANCE) & (found.redone + filled.redone == 0) & ~jnp.any(firsts == NO_STATE)
        first, transitions = _counts(filled.states, layout, n_states)
        return sound, DrawnPath(filled.states, first, transitions, jnp.sum(found.log_likelihood))

    if not underflows:
        return attempt(1)[1]
    again = lambda carry: (jnp.asarray(True), attempt(1)[1])  # noqa: E731
    return jax.lax.while_loop(lambda carry: ~carry[0], again, attempt(0))[1]


def _counts(states: jax.Array, layout: Layout, n_states: int) -> tuple[jax.Array, jax.Array]:
    """First states of sequences, and steps inside them."""
    n_rows, begins = states.shape[0], (layout.left == 0) & (layout.core > 0)
    opened = jnp.where(begins, states[layout.begin], n_states)
    starts = jnp.zeros(n_rows, bool).at[jnp.where(begins, layout.begin, n_rows)].set(True, mode="drop")
    counted = ~starts[1:] & (jnp.arange(1, n_rows) < jnp.sum(layout.core))
    pairs = jnp.where(counted, states[:-1].astype(jnp.int32) * n_states + states[1:], n_states**2)
    first, steps = jnp.bincount(opened, length=n_states + 1), jnp.bincount(pairs, length=n_states**2 + 1)
    return first[:-1].astype(float), steps[:-1].reshape(n_states, n_states).astype(float)
