"""The reference backend, in JAX: every kind of potentials, on every device."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.lanes import at_time, chunk_steps, ends, expected_sums, in_groups, place, to_rows
from longhmm.backends.protocol import (
    NO_STATE,
    PAIR,
    Boundary,
    ChunkPaths,
    ChunkStatistics,
    Lowered,
    Messages,
    PathsWanted,
    Uniforms,
    Varying,
    Wanted,
    weighted_sum,
)
from longhmm.data.layout import Layout
from longhmm.inference.markov import centred_counts, stationary
from longhmm.inference.recursions import Smoothed, drawn, filtered, path_messages, path_origins, smoothed
from longhmm.inference.scaling import at_zero, log_sum_exp, safe_log

name = "reference"
many_points = False
underflows = False


def supports(kind: int, n_states: int, time_varying: bool, precision: Any) -> bool:
    """Always."""
    return True


def statistics(
    lowered: Lowered,
    transition: Any,
    initial: Any,
    layout: Layout,
    boundary: Boundary,
    weights: Any,
    *,
    start: Any,
    wanted: Wanted,
) -> ChunkStatistics:
    """Marginals of the cores, in the precision of `transition`."""
    varying = isinstance(transition, Varying)
    one = transition.matrices[0] if varying else transition
    n, size = one.shape[-1], layout.size
    if start is None and boundary.forward is None:
        start = jax.lax.stop_gradient(stationary(one))

    def one_group(group: tuple[Layout, Boundary]) -> tuple[Any, ...]:
        return _group(lowered, transition, initial, *group, start=start, wanted=wanted)

    by_chunk = in_groups(one_group, (layout, boundary), size, n * sum(layout.spans))
    sums, gamma, pairs, messages, impossible = by_chunk
    if not wanted.per_chunk:
        by = jnp.ones(size) if weights is None else weights
        sums = tuple(weighted_sum(by, each).astype(each.dtype) for each in sums)
    gamma = to_rows(gamma, place(layout), wanted.gamma) if wanted.gamma else jnp.zeros((1, n), one.dtype)
    pairs = to_rows(pairs, place(layout), wanted.gamma) if wanted.gamma and varying else None
    rows = jnp.where(impossible >= 0, impossible, jnp.iinfo(jnp.int32).max)
    row = jnp.where(jnp.any(impossible >= 0), jnp.min(rows), -1).astype(jnp.int32)
    logs, first, counts, centred, expected = sums
    ends = messages if wanted.messages else None
    return ChunkStatistics(logs, first, counts, centred, expected, gamma, pairs, ends, row)


def _group(
    lowered: Lowered, transition: Any, initial: Any, layout: Layout, boundary: Boundary, *, start: Any, wanted: Wanted
) -> tuple[Any, ...]:
    """Sums of each chunk, probabilities `(W, time, K)` of states and of pairs, messages, and impossible rows."""
    pair, placed = lowered.kind == PAIR, place(layout)
    steps = chunk_steps(lowered, transition, initial, layout, placed)
    dtype, n = steps.matrices.dtype, steps.initial.shape[0]
    log_start = jnp.zeros(n) if start is None else safe_log(jnp.asarray(start))
    before = ends(boundary.forward, log_start, layout).astype(dtype)
    after = ends(boundary.backward, jnp.zeros(n, dtype), layout)
    if wanted.forward_only:
        found = _forward_only(before, steps)
    else:
        found = smoothed(before, after, steps, placed.core, messages=wanted.messages)
    gamma = jnp.where(placed.core[:, None, :], found.gamma, 0.0)
    begins = steps.opens & (layout.left == 0) & (layout.core > 0)
    opening = gamma[0] if found.pairs is None or not pair else jnp.sum(found.pairs[0], axis=1)
    sums = jnp.zeros((layout.size, n, 0), dtype)
    if lowered.natural is not None and not wanted.forward_only:
        rows = jnp.asarray(lowered.rows)[placed.rows].astype(dtype)
        how = (lowered.kind, lowered.width, lowered.sums)
        sums = expected_sums(*how, rows, lowered.natural.astype(dtype), jnp.swapaxes(gamma, 1, 2))
    transitions = jnp.moveaxis(found.transitions, 2, 0)
    by_chunk = (
        jnp.sum(jnp.where(placed.core, found.log_normaliser, 0.0), axis=0),
        jnp.where(begins, opening, 0.0).T,
        transitions,
        jnp.zeros_like(transitions) if isinstance(transition, Varying) else centred_counts(transitions, transition),
        sums,
    )
    at = jnp.where((found.impossible_at >= 0) & (layout.core > 0), found.impossible_at, -1)
    row = jnp.where(at >= 0, layout.begin - layout.left + at, -1)
    unasked = jnp.zeros((layout.size, 1), dtype)
    kept: Any = (found.pairs if pair else gamma, found.pairs if isinstance(transition, Varying) else None)
    probabilities = (unasked if each is None or not wanted.gamma else jnp.moveaxis(each, -1, 0) for each in kept)
    end = layout.left + layout.core
    by_end = (
        (found.log_forward, layout.left),
        (found.log_forward, end),
        (found.log_backward, end),
        (found.log_backward, layout.left),
    )
    messages = Messages(*(at_time(*each).T for each in by_end))
    return by_chunk, *probabilities, messages, row


def _forward_only(before: jax.Array, steps: Any) -> Smoothed:
    found = filtered(before, steps)
    gamma = jnp.exp(found.log_forward[1:])
    n, size = before.shape
    nothing, none = jnp.zeros((n, n, size), gamma.dtype), None
    if steps.pairs or steps.matrices.ndim == 4:
        none = jnp.zeros((len(gamma), n, n, size), gamma.dtype)
    backward = jnp.zeros_like(found.log_forward)
    return Smoothed(gamma, nothing, none, found.log_normaliser, found.log_forward, backward, found.impossible_at)


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
        maps = _maps(traced, chunks) if wanted.maps else jnp.zeros((chunks.size, n + 1), jnp.int32)
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
    lowered: Lowered,
    transition: Any,
    initial: Any,
    layout: Layout,
    before: jax.Array,
    uniforms: Uniforms,
    as_draws: bool,
) -> _Traced:
    placed, left, end = place(layout), layout.left, layout.left + layout.core
    steps = chunk_steps(lowered, transition, initial, layout, placed)
    before = at_zero(before)[0]
    before = before - log_sum_exp(before, 0) if as_draws else before
    messages, gains = path_messages(before, steps, best=not as_draws)
    came, final = at_time(messages, left), at_time(messages, end)
    gain = jnp.sum(jnp.where(placed.core, gains, 0.0), axis=0)
    if as_draws:
        # A state is decided by the number of its own row, which for origins is the one before.
        rows = layout.begin - left + jnp.arange(-1, len(gains))[:, None]
        numbers = row_uniforms(uniforms.key, uniforms.first_row + rows)
        origins = path_origins(messages, steps, numbers[:-1])
        ending = drawn(final[None], at_time(numbers[:, None], end))[0]
    else:
        origins = path_origins(messages, steps, None)
        ending = jnp.argmax(final, axis=0)
        begins = steps.opens & (left == 0) & ~jnp.asarray(steps.pairs)  # whatever came before plays no part
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
