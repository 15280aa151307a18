"""Paths of states by the reference backend: in log space, for every kind of potentials."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.lanes import at_time, chunk_logs, chunk_operators, ends, in_groups, place, to_rows
from longhmm.backends.protocol import NO_STATE, PAIR, ChunkPaths, Lowered, PathsWanted, Uniforms, Varying
from longhmm.data.layout import Layout
from longhmm.inference import operators
from longhmm.inference.scaling import at_zero, log_sum_exp, safe_log


def paths(
    lowered: Lowered,
    transition: Any,
    initial: Any,
    layout: Layout,
    forward: Any,
    following: Any,
    uniforms: Uniforms,
    *,
    start: Any,
    log_space: Any,
    wanted: PathsWanted,
) -> ChunkPaths:
    """Paths through the cores, under `jax.enable_x64(True)`; always in log space."""
    n, log_start = initial.shape[-1], safe_log(jnp.asarray(initial if start is None else start))

    def one_group(group: tuple[Layout, Any, Any]) -> tuple[Any, ...]:
        chunks, forward, following = group
        before = ends(forward, log_start, chunks)
        traced = _trace(lowered, transition, initial, chunks, before, uniforms, wanted.drawn)
        maps = _maps(traced, chunks) if wanted.maps else jnp.zeros((chunks.size, 1), jnp.int32)
        states = _states(traced, chunks, following) if wanted.states else jnp.zeros((chunks.size, 1), jnp.int32)
        return *traced[:3], maps, states

    before, out, logs, maps, states = in_groups(
        one_group, (layout, forward, following), layout.size, n * n * sum(layout.spans)
    )
    small = jnp.uint8 if n <= NO_STATE else jnp.int32
    rows = to_rows(states, place(layout), wanted.states) if wanted.states else jnp.zeros(1)
    return ChunkPaths(before, out, logs, maps.astype(small), rows.astype(small), jnp.zeros((), jnp.int64))


class _Traced(NamedTuple):
    """Messages and log likelihoods as in `ChunkPaths`; `origins[t, j, w]`, the state before time t given state j at it;
    `last` `(K + 1, W)`, the state at the last core row given the one behind it, or nothing."""

    forward_in: jax.Array
    forward_out: jax.Array
    log_likelihood: jax.Array
    origins: jax.Array
    last: jax.Array


def _trace(
    lowered: Lowered, transition: Any, initial: Any, layout: Layout, before: Any, uniforms: Uniforms, drawn: bool
) -> _Traced:
    one = transition.matrices if isinstance(transition, Varying) else transition
    placed, left, end = place(layout), layout.left, layout.left + layout.core
    logs = chunk_logs(lowered, placed, one.dtype)
    steps = chunk_operators(logs, transition, initial, layout, placed)
    if lowered.kind == PAIR:
        before = jnp.where(layout.opens > 0, safe_log(jnp.asarray(initial))[:, None], before)
    before = at_zero(before)[0]
    if drawn:
        messages, gains = operators.filtered(before - log_sum_exp(before, 0), steps)
        # A state is decided by the number of its own row, which for origins is the one before.
        rows = layout.begin - left + jnp.arange(-1, len(steps))[:, None]
        numbers = row_uniforms(uniforms.key, uniforms.first_row + rows)
        origins = operators.drawn_origins(messages, steps, numbers[:-1])
        final, number = at_time(messages, end), at_time(numbers[:, None], end)
        ending = operators.drawn_origins(jnp.stack([final, final]), jnp.zeros_like(final)[None, :, None], number)[0, 0]
    else:
        messages, gains, origins = operators.best_scores(before, steps)
        final = at_time(messages, end)
        ending = jnp.argmax(final, axis=0)
    gain = jnp.sum(jnp.where(placed.core, gains, 0.0), axis=0)
    came = at_time(messages, left)
    if not drawn:
        begins = (layout.opens > 0) & (left == 0) & (lowered.kind != PAIR)  # whatever came before plays no part
        gain = gain + log_sum_exp(final, 0) - jnp.where(begins, 0.0, log_sum_exp(came, 0))
    followed = at_time(origins, jnp.minimum(end, len(origins) - 1))
    last = jnp.concatenate([followed, ending[None].astype(jnp.int32)])
    return _Traced(came.T, final.T, gain, origins, last)


def _maps(traced: _Traced, layout: Layout) -> jax.Array:
    """First states `(W, K + 1)`, by what follows."""

    def step(first: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        time, origin = inputs
        inner = (time > layout.left) & (time < layout.left + layout.core)
        return jnp.where(inner, jnp.take_along_axis(first, origin, axis=0), first), None

    itself = jnp.broadcast_to(jnp.arange(traced.origins.shape[1])[:, None], traced.origins.shape[1:])
    first, _ = jax.lax.scan(step, itself, (jnp.arange(len(traced.origins)), traced.origins))
    return jnp.take_along_axis(first, traced.last, axis=0).T


def _states(traced: _Traced, layout: Layout, following: jax.Array) -> jax.Array:
    """States `(W, time)` of core times."""
    chunks, n = jnp.arange(layout.size), traced.origins.shape[1]

    def step(state: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        time, origin = inputs
        inner = (time > layout.left) & (time < layout.left + layout.core)
        return jnp.where(inner, origin[state, chunks], state), state

    final = traced.last[jnp.where(following < 0, n, following), chunks]
    _, states = jax.lax.scan(step, final, (jnp.arange(len(traced.origins)), traced.origins), reverse=True)
    return states.T


def row_uniforms(key: jax.Array, rows: jax.Array) -> jax.Array:
    """Uniforms on [0, 1) that depend on a key and on the number of a row alone; the C++ kernel has the same."""
    from jax.extend.random import threefry_2x32

    counts = rows.ravel().astype(jnp.uint64)
    words = jnp.concatenate([counts >> 32, counts & 0xFFFFFFFF]).astype(jnp.uint32)
    high, low = jnp.split(threefry_2x32(key, words).astype(jnp.uint64), 2)
    return ((((high << 32) | low) >> 11).astype(jnp.float64) * 2.0**-53).reshape(rows.shape)
