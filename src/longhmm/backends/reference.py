"""The reference backend, in JAX: every kind of potentials, on every device."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.kinds import expected_sums
from longhmm.backends.lanes import Placed, at_time, chunk_logs, chunk_operators, ends, in_groups, place, to_rows
from longhmm.backends.protocol import (
    PAIR,
    Boundary,
    ChunkStatistics,
    Lowered,
    Messages,
    Varying,
    Wanted,
    weighted_sum,
)
from longhmm.backends.reference_paths import paths as paths  # the other half of this backend
from longhmm.data.layout import Layout
from longhmm.inference import operators
from longhmm.inference.forward import filter_messages
from longhmm.inference.forward_backward import forward_backward
from longhmm.inference.markov import excess, stationary
from longhmm.inference.scaling import safe_log

name = "reference"
many_points = False
underflows = False


def supports(kind: int, n_states: int, time_varying: bool, precision: Any) -> bool:
    """Always."""
    return True


class Recursion(NamedTuple):
    """What both recursions found: `gamma` `(time, K, W)`, transitions of each chunk, their pairs by time where asked
    for, log normalisers `(time, W)`, log messages `(time + 1, K, W)`, and the first impossible time `(W,)` or -1."""

    gamma: jax.Array
    transitions: jax.Array
    pairs: jax.Array | None
    log_normaliser: jax.Array
    log_forward: jax.Array
    log_backward: jax.Array
    impossible_at: jax.Array


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
    one = transition.matrices[0] if isinstance(transition, Varying) else transition
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
    unasked, varying = jnp.zeros((1, 1), one.dtype), isinstance(transition, Varying)
    spread = to_rows(gamma, place(layout), wanted.gamma) if wanted.gamma else unasked
    moved = to_rows(pairs, place(layout), wanted.gamma) if wanted.gamma and varying else None
    rows = jnp.where(impossible >= 0, impossible, jnp.iinfo(jnp.int32).max)
    named = jnp.where(jnp.any(impossible >= 0), jnp.min(rows), -1).astype(jnp.int32)
    logs, first, counts, centred, expected = sums
    ends = messages if wanted.messages else None
    return ChunkStatistics(logs, first, counts, centred, expected, spread, moved, ends, named)


def _group(
    lowered: Lowered, transition: Any, initial: Any, layout: Layout, boundary: Boundary, *, start: Any, wanted: Wanted
) -> tuple[Any, ...]:
    """Sums of each chunk, probabilities `(W, time, K)` of states and of pairs, messages, and impossible rows."""
    varying, pair = isinstance(transition, Varying), lowered.kind == PAIR
    one = transition.matrices[0] if varying else transition
    dtype, n = one.dtype, one.shape[-1]
    placed = place(layout)
    logs = chunk_logs(lowered, placed, dtype)
    before = ends(boundary.forward, jnp.zeros(n) if start is None else safe_log(jnp.asarray(start, dtype)), layout)
    after = ends(boundary.backward, jnp.zeros(n, dtype), layout)
    opens = jnp.asarray(layout.opens) > 0
    if varying or pair:
        if pair:
            before = jnp.where(opens, safe_log(jnp.asarray(initial))[:, None], before)
        steps = chunk_operators(logs, transition, initial, layout, placed)
        found = _by_operators(before, after, steps, placed, opens & ~jnp.asarray(pair), wanted)
    else:
        found = _by_matrix(before, after, opens, initial, transition, logs, placed, wanted)
    gamma = jnp.where(placed.core[:, None, :], found.gamma, 0.0)
    begins = opens & (layout.left == 0) & (layout.core > 0)
    first = jnp.where(begins, jnp.sum(found.pairs[0], axis=1) if pair and found.pairs is not None else gamma[0], 0.0).T
    sums = jnp.zeros((layout.size, n, 0), dtype)
    if lowered.natural is not None and not wanted.forward_only:
        rows = jnp.asarray(lowered.rows)[placed.rows].astype(dtype)
        how = (lowered.kind, lowered.width, lowered.sums)
        sums = expected_sums(*how, rows, lowered.natural.astype(dtype), jnp.swapaxes(gamma, 1, 2))
    by_chunk = (
        jnp.sum(jnp.where(placed.core, found.log_normaliser, 0.0), axis=0),
        first,
        found.transitions,
        jnp.zeros_like(found.transitions) if varying else excess(found.transitions, transition),
        sums,
    )
    at = jnp.where((found.impossible_at >= 0) & (layout.core > 0), found.impossible_at, -1)
    row = jnp.where(at >= 0, layout.begin - layout.left + at, -1)
    by_pair: Any = found.pairs
    kept, unasked = by_pair if pair else gamma, jnp.zeros((layout.size, 1), dtype)
    probabilities = jnp.moveaxis(kept, -1, 0) if wanted.gamma else unasked
    pairs = jnp.moveaxis(by_pair, -1, 0) if wanted.gamma and varying else unasked
    return by_chunk, probabilities, pairs, _messages(found, layout), row


def _by_matrix(
    before: jax.Array,
    after: jax.Array,
    opens: jax.Array,
    initial: Any,
    transition: jax.Array,
    logs: jax.Array,
    placed: Placed,
    wanted: Wanted,
) -> Recursion:
    initial = jnp.asarray(initial, transition.dtype)
    if wanted.forward_only:
        found = filter_messages(before, opens, initial, transition, logs)
        nothing = jnp.zeros((*transition.shape, before.shape[1]), transition.dtype)
        log_forward = jnp.concatenate([before[None], found.log_alpha])
        return Recursion(
            jnp.exp(found.log_alpha),
            jnp.moveaxis(nothing, 2, 0),
            None,
            found.log_normaliser,
            log_forward,
            jnp.zeros_like(log_forward),
            found.impossible_at,
        )
    both = forward_backward(before, after, opens, initial, transition, logs, placed.core, messages=wanted.messages)
    return Recursion(
        both.gamma,
        jnp.moveaxis(both.transitions, 2, 0),
        None,
        both.log_normaliser,
        jnp.concatenate([before[None], both.log_alpha]),
        jnp.concatenate([both.log_entering[None], both.log_beta]),
        both.impossible_at,
    )


def _by_operators(
    before: jax.Array, after: jax.Array, steps: jax.Array, placed: Placed, arbitrary: jax.Array, wanted: Wanted
) -> Recursion:
    """`arbitrary`: chunks whose first row leads from any state to the initial distribution, which is no transition."""
    found = operators.smoothed(before, after, steps)
    counted = placed.core & ~((jnp.arange(steps.shape[0]) == 0)[:, None] & arbitrary)
    pairs = jnp.where(counted[:, None, None, :], found.pairs, 0.0)
    gamma = jnp.exp(found.log_forward[1:]) if wanted.forward_only else jnp.sum(found.pairs, axis=1)
    transitions = jnp.moveaxis(jnp.sum(pairs, axis=0), 2, 0)
    return Recursion(
        gamma, transitions, pairs, found.log_normaliser, found.log_forward, found.log_backward, found.impossible_at
    )


def _messages(found: Recursion, layout: Layout) -> Messages:
    left, core = jnp.asarray(layout.left), jnp.asarray(layout.core)

    forward, backward = found.log_forward, found.log_backward
    by_end = ((forward, left), (forward, left + core), (backward, left + core), (backward, left))
    return Messages(*(at_time(*each).T for each in by_end))
