"""The reference backend, in JAX: every kind of potentials, on every device.

Chunks lie side by side: arrays are shaped (time, state, chunk).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends import protocol
from longhmm.backends.programs import platform
from longhmm.backends.protocol import Boundary, ChunkStatistics, PathsGiven, PathsWanted, Potentials
from longhmm.backends.varying import by_matrix, matrices_at
from longhmm.data.layout import Layout
from longhmm.inference.markov import centred_counts, stationary
from longhmm.inference.recursions import Steps, drawn, filtered, path_messages, path_origins, smoothed
from longhmm.inference.scaling import at_zero, log_sum_exp, safe_log, weighted_sum

# Numbers in one (time, state, chunk) array: on a CPU what stays in its cache, elsewhere enough to keep a device busy.
GROUP_ENTRIES = {"cpu": 1 << 16}
GROUP_ENTRIES_ELSEWHERE = 1 << 24

name = "reference"
in_place = False
many_points = False
underflows = False


def supports(kind: int, n_states: int, time_varying: bool, precision: Any) -> bool:
    """Always, but for densities that the C++ kernel alone knows."""
    return kind <= protocol.PAIR


def statistics(
    potentials: Potentials, layout: Layout, boundary: Boundary, weights: Any, wanted: protocol.Wanted
) -> ChunkStatistics:
    """Marginals of the cores."""
    transition = potentials.transition
    varying = isinstance(transition, protocol.Varying)
    one = transition.matrices[0] if varying else transition
    start = boundary.start
    if start is None:
        start = jnp.ones(one.shape[-1]) if boundary.forward is not None else jax.lax.stop_gradient(stationary(one))

    def group(given: tuple[Layout, Any, Any]) -> tuple[Any, ...]:
        return _group(potentials, given[0], Boundary(*given[1:], start), wanted)

    chunks = (layout, boundary.forward, boundary.backward)
    sums, gamma, pairs, messages, impossible = in_groups(group, chunks, layout.size, one.shape[-1] * sum(layout.spans))
    by = jnp.ones(layout.size) if weights is None else weights
    if not wanted.per_chunk:
        sums = tuple(weighted_sum(by, each).astype(each.dtype) for each in sums)
    gamma = to_rows(gamma, place(layout), wanted.gamma) if wanted.gamma else None
    by_row, weights = varying and not wanted.forward_only, None if wanted.per_chunk else by
    pairs = by_matrix(pairs, transition, place(layout), weights) if by_row else None
    rows = jnp.where(impossible >= 0, impossible, jnp.iinfo(jnp.int32).max)
    row = jnp.where(jnp.any(impossible >= 0), jnp.min(rows), -1).astype(jnp.int32)
    return ChunkStatistics._make((*sums, gamma, pairs, messages if wanted.messages else None, row))


def _group(potentials: Potentials, layout: Layout, boundary: Boundary, wanted: protocol.Wanted) -> tuple[Any, ...]:
    """Sums of each chunk, probabilities `(W, time, K)` of states and of pairs, messages, and impossible rows."""
    pair, placed = potentials.kind == protocol.PAIR, place(layout)
    varying = isinstance(potentials.transition, protocol.Varying)
    steps = chunk_steps(potentials, layout, placed)
    dtype, n = steps.matrices.dtype, steps.initial.shape[0]
    before = ends(boundary.forward, safe_log(jnp.asarray(boundary.start)), layout).astype(dtype)
    if wanted.forward_only:
        found = filtered(before, steps)
    else:
        after = ends(boundary.backward, jnp.zeros(n, dtype), layout)
        found = smoothed(before, after, steps, placed.core, messages=wanted.messages)
    gamma = jnp.where(placed.core[:, None, :], found.gamma, 0.0)
    begins = steps.opens & (layout.left == 0) & (layout.core > 0)
    opening = jnp.sum(found.pairs[0], axis=1) if pair and found.pairs is not None else gamma[0]
    sums = jnp.zeros((layout.size, n, 0), dtype)
    if potentials.natural is not None and not wanted.forward_only:
        rows = jnp.asarray(potentials.rows)[placed.rows].astype(dtype)
        how = (potentials.kind, potentials.width)
        sums = expected_sums(*how, rows, potentials.natural.astype(dtype), jnp.swapaxes(gamma, 1, 2))
    transitions = jnp.moveaxis(found.transitions, 2, 0)
    by_chunk = (
        jnp.sum(jnp.where(placed.core, found.log_normaliser, 0.0), axis=0),
        jnp.where(begins, opening, 0.0).T,
        transitions,
        jnp.zeros_like(transitions) if varying else centred_counts(transitions, potentials.transition),
        sums,
    )
    at = jnp.where((found.impossible_at >= 0) & (layout.core > 0), found.impossible_at, -1)
    row = jnp.where(at >= 0, layout.begin - layout.left + at, -1)
    unasked = jnp.zeros((layout.size, 1), dtype)
    kept: Any = (found.pairs if pair and not wanted.forward_only else gamma, found.pairs)
    asked = (wanted.gamma > 0, varying and not wanted.forward_only)
    probabilities = (jnp.moveaxis(each, -1, 0) if of else unasked for each, of in zip(kept, asked, strict=True))
    forward, backward, left, end = found.log_forward, found.log_backward, layout.left, layout.left + layout.core
    by_end = ((forward, left), (forward, end), (backward, end), (backward, left))
    return by_chunk, *probabilities, protocol.Messages(*(at_time(*each).T for each in by_end)), row


def paths(potentials: Potentials, layout: Layout, given: PathsGiven, wanted: PathsWanted) -> protocol.ChunkPaths:
    """Paths through the cores, always in log space."""
    initial = potentials.initial
    n, log_start = initial.shape[-1], safe_log(jnp.asarray(initial if given.start is None else given.start))

    def group(chunks: tuple[Layout, Any, Any]) -> tuple[Any, ...]:
        layout, forward, following = chunks
        before = ends(forward, log_start, layout)
        *messages, origins, last = _trace(potentials, layout, before, given if wanted.drawn else None)
        maps, states = jnp.zeros((layout.size, n + 1), jnp.int32), jnp.zeros((layout.size, 1), jnp.int32)
        if wanted.maps:
            maps = _follow(origins, layout, last)[0].T
        if wanted.states:
            final = last[jnp.where(following < 0, n, following), jnp.arange(layout.size)]
            states = _follow(origins, layout, final[None])[1][:, 0].T
        return *messages, maps, states

    chunks = (layout, given.forward, given.following)
    *messages, maps, states = in_groups(group, chunks, layout.size, n * n * sum(layout.spans))
    small = jnp.uint8 if n <= protocol.NO_STATE else jnp.int32
    rows = to_rows(states, place(layout), wanted.states) if wanted.states else jnp.zeros(1)
    return protocol.ChunkPaths._make((*messages, maps.astype(small), rows.astype(small)))


def _trace(
    potentials: Potentials, layout: Layout, before: jax.Array, draws: PathsGiven | None
) -> tuple[jax.Array, ...]:
    """Best paths, or with random numbers drawn ones: messages and log likelihoods as in `ChunkPaths`; `[t, j, w]`, the
    state before time t given state j at it; and the last of the core `(K + 1, W)`, given the one behind it, or none."""
    placed, left, end = place(layout), layout.left, layout.left + layout.core
    steps = chunk_steps(potentials, layout, placed)
    before = at_zero(before)
    before = before if draws is None else before - log_sum_exp(before, 0)
    messages, gains = path_messages(before, steps, best=draws is None)
    came, final = at_time(messages, left), at_time(messages, end)
    gain = jnp.sum(jnp.where(placed.core, gains, 0.0), axis=0)
    if draws is not None:
        # A state is decided by the number of its own row, which for origins is the one before.
        rows = layout.begin - left + jnp.arange(-1, len(gains))[:, None]
        numbers = row_uniforms(jnp.asarray(draws.key), draws.first_row + rows)
        origins = path_origins(messages, steps, numbers[:-1])
        ending = drawn(final[None], at_time(numbers[:, None], end))[0]
    else:
        origins = path_origins(messages, steps, None)
        ending = jnp.argmax(final, axis=0)
        begins = steps.opens & (left == 0) & ~jnp.asarray(steps.pairs)  # whatever came before plays no part
        gain = gain + log_sum_exp(final, 0) - jnp.where(begins, 0.0, log_sum_exp(came, 0))
    followed = at_time(origins, jnp.minimum(end, len(origins) - 1))
    return came.T, final.T, gain, origins, jnp.concatenate([followed, ending[None].astype(jnp.int32)])


def _follow(origins: jax.Array, layout: Layout, last: jax.Array) -> tuple[jax.Array, jax.Array]:
    """From states `(m, W)` at the last core times, the first ones, and all of them `(time, m, W)`."""

    def step(state: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        time, origin = inputs
        inner = (time > layout.left) & (time < layout.left + layout.core)
        return jnp.where(inner, jnp.take_along_axis(origin, state, axis=0), state), state

    return jax.lax.scan(step, last, (jnp.arange(len(origins)), origins), reverse=True)


def row_uniforms(key: jax.Array, rows: jax.Array) -> jax.Array:
    """Uniforms on [0, 1) that depend on a key and on the number of a row alone; the C++ kernel has the same."""
    from jax.extend.random import threefry_2x32

    counts = rows.ravel().astype(jnp.uint64)
    words = jnp.concatenate([counts >> 32, counts & 0xFFFFFFFF]).astype(jnp.uint32)
    high, low = jnp.split(threefry_2x32(key, words).astype(jnp.uint64), 2)
    return ((((high << 32) | low) >> 11).astype(jnp.float64) * 2.0**-53).reshape(rows.shape)


class Placed(NamedTuple):
    """Rows of chunks, time first: which row each time is, which times lie in the chunk, and which in its core."""

    rows: jax.Array
    inside: jax.Array
    core: jax.Array


def place(layout: Layout) -> Placed:
    """Where the rows of every chunk lie."""
    times = jnp.arange(sum(layout.spans))[:, None]
    left, core, right = (jnp.asarray(each) for each in (layout.left, layout.core, layout.right))
    inside = times < left + core + right
    rows = jnp.asarray(layout.begin) - left + jnp.where(inside, times, 0)
    return Placed(jnp.where(inside, rows, 0), inside, (times >= left) & (times < left + core))


def chunk_steps(potentials: Potentials, layout: Layout, placed: Placed) -> Steps:
    """What leads from row to row, in the precision of the transition matrix."""
    matrices = transition = potentials.transition
    if isinstance(transition, protocol.Varying):
        matrices = jnp.moveaxis(matrices_at(transition, placed.rows), 1, 3)
    dtype, natural = matrices.dtype, potentials.natural
    rows = jnp.asarray(potentials.rows)[placed.rows].astype(dtype)
    natural = None if natural is None else natural.astype(dtype)
    logs = jnp.moveaxis(log_likelihoods(potentials.kind, potentials.width, rows, natural), 1, -1)
    inside = placed.inside[:, None, None] if potentials.kind == protocol.PAIR else placed.inside[:, None]
    initial, opens = jnp.asarray(potentials.initial, dtype), jnp.asarray(layout.opens) > 0
    return Steps(matrices, jnp.where(inside, logs, 0.0), initial, opens)


def ends(given: Any, otherwise: jax.Array, layout: Layout) -> jax.Array:
    """Log messages `(K, W)`."""
    if given is not None:
        return jnp.asarray(given).T
    return jnp.broadcast_to(otherwise[:, None], (otherwise.shape[0], layout.size))


def at_time(values: jax.Array, time: jax.Array) -> jax.Array:
    """`(K, W)`, what `(time, K, W)` holds at a time of its own for each chunk."""
    index = jnp.broadcast_to(time[None, None, :], (1, *values.shape[1:]))
    return jnp.take_along_axis(values, index, axis=0)[0]


def to_rows(values: jax.Array, placed: Placed, n_rows: int) -> jax.Array:
    """Values of core times `(W, time, ...)` at their rows, `(n, ...)`; 0 elsewhere."""
    rows = jnp.where(placed.core, placed.rows, n_rows).T
    return jnp.zeros((n_rows, *values.shape[2:]), values.dtype).at[rows].set(values, mode="drop")


def in_groups(run: Callable[[Any], Any], chunks: Any, size: int, entries: int) -> Any:
    """Run a function of a tree of chunks `(W, ...)` on as many at a time as memory likes; `entries` of each chunk."""
    most = GROUP_ENTRIES.get(platform(), GROUP_ENTRIES_ELSEWHERE)
    lanes = min(size, max(1, most // entries))
    spare = -size % lanes

    def grouped(array: Any) -> jax.Array:
        array = jnp.asarray(array)
        return jnp.pad(array, ((0, spare), *[(0, 0)] * (array.ndim - 1))).reshape(-1, lanes, *array.shape[1:])

    # Compiled once, and one after the other: a condition inside stays a condition.
    found = jax.lax.map(run, jax.tree.map(grouped, chunks))
    return jax.tree.map(lambda each: each.reshape(size + spare, *each.shape[2:])[:size], found)


def log_likelihoods(kind: int, width: int, rows: jax.Array, natural: jax.Array | None) -> jax.Array:
    """`(..., K)` of rows `(..., width)`; 0 where a row is missing."""
    if natural is None:
        return jnp.where(jnp.isnan(rows), 0.0, rows)
    filled, present = _filled(rows)
    if kind == protocol.TABLE:
        codes = filled[..., 0].astype(jnp.int32)
        known = (codes >= 0) & (codes < natural.shape[1])  # what is no category is impossible
        logs = jnp.moveaxis(natural[:, jnp.where(known, codes, 0)], 0, -1)
        logs = jnp.where(known[..., None], logs, -jnp.inf)
    elif kind == protocol.LINEAR:
        # A GPU would round the factors of a product otherwise.
        logs = natural[:, 0] + jnp.matmul(filled, natural[:, 1:].T, precision=jax.lax.Precision.HIGHEST)
    else:
        away = filled[..., None, :] - natural[:, 1 : 1 + width]
        logs, place = natural[:, 0], 1 + width
        for i in range(width):
            z = jnp.sum(natural[:, place : place + i + 1] * away[..., : i + 1], axis=-1)
            logs, place = logs - 0.5 * z * z, place + i + 1
    return jnp.where(present, logs, 0.0)


def expected_sums(kind: int, width: int, rows: jax.Array, natural: jax.Array, gamma: jax.Array) -> jax.Array:
    """`(..., K, sums)` of rows `(time, ..., width)` with probabilities `(time, ..., K)`, summed over time: of a
    Gaussian moments about the mean, else the derivative by natural parameters."""
    if kind == protocol.GAUSSIAN:
        filled, present = _filled(rows)
        gamma, away = jnp.where(present, gamma, 0.0), filled[..., None, :] - natural[:, 1 : 1 + width]
        products = [away[..., i] * away[..., j] for i in range(width) for j in range(i, width)]
        terms = [jnp.ones_like(gamma), *(away[..., i] for i in range(width)), *products]
        return jnp.stack([jnp.sum(gamma * term, axis=0) for term in terms], axis=-1)
    if rows.ndim == 3:
        return jax.vmap(partial(expected_sums, kind, width), (1, None, 1))(rows, natural, gamma)
    return jax.vjp(partial(log_likelihoods, kind, width, rows), natural)[1](gamma)[0]


def _filled(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows with zeros where they are missing, and whether they are there."""
    present = jnp.all(rows == rows, axis=-1, keepdims=True)
    return jnp.where(present, rows, 0.0), present
