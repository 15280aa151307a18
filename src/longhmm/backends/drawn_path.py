"""A path of states drawn from its posterior inside one program: forward filtering, backward sampling (F7).

Chunks start some rows early until the messages at their boundaries agree, or transfer operators make these exact. Then
the maps of all chunks are followed from the end, and the chunks are filled in (see `ChunkPaths`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.evaluate import Params, Potentials
from longhmm.backends.protocol import NO_STATE, Backend, ChunkPaths, PathsWanted, Uniforms
from longhmm.backends.resident import Data, Program, by_blocks
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

# Runs chunks once: messages before them (None: warm-started), states behind them, whether in log space, what is wanted.
# Returns, beside paths, the steps between chunks.
Run = Callable[[Layout, Any, Any, Any, PathsWanted], tuple[ChunkPaths, jax.Array]]


class DrawnPath(NamedTuple):
    """One path through all data, with its counts.

    Attributes:
        states: `(T,)`, the state at every row.
        first: `(K,)`, number of sequences that begin in each state.
        transitions: `(K, K)`, number of steps from i to j.
        log_likelihood: `log p(y)`, the states summed out.
    """

    states: jax.Array
    first: jax.Array
    transitions: jax.Array
    log_likelihood: jax.Array


def draw_path(program: Program, data: Data, params: Params, key: jax.Array) -> DrawnPath:
    """A draw from `P(x | all y)`, under `jax.enable_x64(True)`; where an emission has no lowering, block by block."""
    spans = (0, 0, 0) if program.backend.name == "cpp" else (program.overlaps[-1], program.chunk, 1)
    layout, words = replace(data.layout, spans=spans), jax.random.key_data(key).ravel()[:2]
    small = jnp.uint8 if program.model.n_states <= NO_STATE else jnp.int32

    def run(layout: Layout, forward: Any, following: Any, log_space: Any, wanted: PathsWanted) -> Any:
        room = program.length if data.numbers is not None else program.block_rows
        wanted = wanted._replace(states=room if wanted.states else 0)

        def one(potentials: Potentials, origin: Any, chunks: Layout, forward: Any, following: Any) -> Any:
            run_all = chunk_run(program.backend, potentials, params["initial"], Uniforms(words, origin))
            found, steps = run_all(chunks, forward, following, log_space, wanted)
            if data.numbers is None:
                undefined = jnp.any(jnp.isnan(potentials.lowered.rows))
                found = found._replace(log_likelihood=jnp.where(undefined, jnp.nan, found.log_likelihood))
            return found, steps, origin

        found, steps, origins = by_blocks(program, data, params, one, layout, forward, following)

        def fill(states: jax.Array, block: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            origin, own = block  # 0 in rows that belong to other blocks
            here = jax.lax.dynamic_slice_in_dim(states, origin, room) + own
            return jax.lax.dynamic_update_slice_in_dim(states, here, origin, 0), None

        states = found.states[0]
        if data.numbers is None and wanted.states:
            states, _ = jax.lax.scan(fill, jnp.zeros(program.length, small), (origins, found.states))
        redone, rest = jnp.sum(found.redone), found._replace(states=None, redone=None)
        paths, steps = jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), (rest, steps))
        return paths._replace(states=states, redone=redone), steps

    drawn = draw_chunks(run, layout, program.model.n_states, program.length, underflows=program.backend.underflows)
    return drawn._replace(log_likelihood=drawn.log_likelihood + data.log_base_measure)


def chunk_run(backend: Backend, potentials: Potentials, initial: Any, uniforms: Uniforms) -> Run:
    """All chunks in one call."""
    lowered, transition, _ = potentials

    def run(layout: Layout, forward: Any, following: Any, log_space: Any, wanted: PathsWanted) -> Any:
        start = warm_start(transition) if forward is None else None
        found = backend.paths(
            lowered, transition, initial, layout, forward, following, uniforms,
            start=start, log_space=log_space, wanted=wanted,
        )  # fmt: skip
        return found, boundary_steps(lowered, transition, layout)

    return run


def path_operators(run: Run, layout: Layout, n_states: int, *, drawn: bool) -> jax.Array:
    """Transfer operators `(W, K, K)` of chunks without overlap; of best paths, their scores."""

    def forward(before: jax.Array) -> tuple[jax.Array, jax.Array]:
        found, _ = run(layout, before, None, 1, PathsWanted(drawn, messages=True))
        return found.log_likelihood, found.forward_out

    return transfer_operators(forward, n_states, layout.size, jnp.float64)


def draw_chunks(run: Run, layout: Layout, n_states: int, n_rows: int, *, underflows: bool) -> DrawnPath:
    """A path through chunks whose cores are all rows, in order.

    `left` holds the rows of the same sequence before each chunk, as many as may be of use; `spans` holds zeros, or the
    longest `left`, the longest core and 1.
    """
    lead, longest, behind = layout.spans
    overlaps = (lead,) if longest else OVERLAPS
    joined, own = layout.left > 0, layout.trimmed(0, 1, (0, longest, behind))

    def warm_started(log_space: int) -> tuple[jax.Array, jax.Array]:
        """Messages before all chunks, and how far they disagree."""

        def longer(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            chunks = layout.trimmed(jnp.asarray(overlaps, jnp.int32)[carry[0]], 1, layout.spans)
            found, steps = run(chunks, None, None, log_space, PathsWanted(True, messages=True))
            gap = inner_forward_gap(steps, found.forward_out, found.forward_in, joined, best=False)
            return carry[0] + 1, found.forward_in, gap

        def disagree(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            return (carry[0] < len(overlaps)) & ~(carry[2] <= TOLERANCE)

        nothing = (jnp.zeros((), jnp.int32), jnp.zeros((layout.size, n_states)), jnp.asarray(jnp.inf))
        _, before, gap = jax.lax.while_loop(disagree, longer, nothing)
        return before, gap

    def propagated(_: Any) -> tuple[jax.Array, jax.Array]:
        operators = path_operators(run, own, n_states, drawn=True)
        return propagate_forward(jnp.full(n_states, -jnp.log(float(n_states))), operators)[0], jnp.zeros(())

    def attempt(log_space: int) -> tuple[jax.Array, DrawnPath]:
        """A path, and whether it is a draw from the posterior; in log space it always is."""
        before, gap = warm_started(log_space)
        if log_space:
            # A loop of one turn at most: unlike a condition, it costs nothing where chains share a program.
            before, gap = jax.lax.while_loop(lambda carry: ~(carry[1] <= TOLERANCE), propagated, (before, gap))
        found, _ = run(own, before, None, log_space, PathsWanted(True, messages=True, maps=True))

        def follow(state: jax.Array, chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            firsts, onward = chunk
            following = jnp.where(onward, state, -1)
            return firsts[following].astype(jnp.int32), following

        onward = jnp.append(joined[1:], False)
        _, following = jax.lax.scan(follow, jnp.asarray(-1, jnp.int32), (found.maps, onward), reverse=True)
        filled, _ = run(own, before, following, log_space, PathsWanted(True, states=n_rows))
        sound = (gap <= TOLERANCE) & (found.redone + filled.redone == 0) & ~jnp.any(following == NO_STATE)
        counts = _counts(filled.states, layout, n_states)
        return sound, DrawnPath(filled.states, *counts, jnp.sum(found.log_likelihood))

    if not underflows:
        return attempt(1)[1]
    return jax.lax.while_loop(lambda carry: ~carry[0], lambda _: (jnp.asarray(True), attempt(1)[1]), attempt(0))[1]


def _counts(states: jax.Array, layout: Layout, n_states: int) -> tuple[jax.Array, jax.Array]:
    """First states of sequences, and steps inside them."""
    n_rows, begins = states.shape[0], (layout.left == 0) & (layout.core > 0)
    starts = jnp.zeros(n_rows, bool).at[jnp.where(begins, layout.begin, n_rows)].set(True, mode="drop")
    inside = jnp.arange(1, n_rows) < jnp.sum(layout.core)
    steps = jnp.where(~starts[1:] & inside, states[:-1].astype(jnp.int32) * n_states + states[1:], n_states**2)
    opened = jnp.where(begins, states[layout.begin], n_states)
    first, moves = jnp.bincount(opened, length=n_states + 1), jnp.bincount(steps, length=n_states**2 + 1)
    return first[:-1].astype(float), moves[:-1].reshape(n_states, n_states).astype(float)
