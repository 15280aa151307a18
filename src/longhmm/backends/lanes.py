"""Chunks side by side for the reference backend: arrays are shaped (time, state, chunk).

Log likelihoods and expected sufficient statistics of every kind of rows are here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.protocol import GAUSSIAN, LINEAR, PAIR, PRECOMPUTED, TABLE, Lowered, Varying
from longhmm.data.layout import Layout
from longhmm.inference.recursions import Steps

# Numbers in one (time, state, chunk) array: on a CPU what stays in its cache, elsewhere enough to keep a device busy.
GROUP_ENTRIES = {"cpu": 1 << 16}
GROUP_ENTRIES_ELSEWHERE = 1 << 24


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


def chunk_steps(lowered: Lowered, transition: Any, initial: Any, layout: Layout, placed: Placed) -> Steps:
    """What leads from row to row, in the precision of `transition`."""
    matrices = transition
    if isinstance(transition, Varying):
        by_row = jnp.asarray(transition.matrices)[jnp.asarray(transition.index)[placed.rows]]
        matrices = jnp.moveaxis(by_row, 1, 3)
    dtype = matrices.dtype
    return Steps(matrices, _logs(lowered, placed, dtype), jnp.asarray(initial, dtype), jnp.asarray(layout.opens) > 0)


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
    most = GROUP_ENTRIES.get(jax.default_backend(), GROUP_ENTRIES_ELSEWHERE)
    lanes = min(size, max(1, most // entries))
    spare = -size % lanes

    def grouped(array: Any) -> jax.Array:
        array = jnp.asarray(array)
        return jnp.pad(array, ((0, spare), *[(0, 0)] * (array.ndim - 1))).reshape(-1, lanes, *array.shape[1:])

    # Compiled once, and one after the other: a condition inside stays a condition.
    found = jax.lax.map(run, jax.tree.map(grouped, chunks))
    return jax.tree.map(lambda each: each.reshape(size + spare, *each.shape[2:])[:size], found)


def _logs(lowered: Lowered, placed: Placed, dtype: Any) -> jax.Array:
    """Log likelihoods `(time, K, W)`, of pairs `(time, K, K, W)`; 0 outside of chunks and where rows are missing."""
    rows = jnp.asarray(lowered.rows)[placed.rows].astype(dtype)
    if lowered.kind == PAIR:
        logs = jnp.moveaxis(jnp.where(jnp.isnan(rows), 0.0, rows), 1, 3)
        return jnp.where(placed.inside[:, None, None, :], logs, 0.0)
    natural = None if lowered.natural is None else lowered.natural.astype(dtype)
    logs = jnp.swapaxes(log_likelihoods(lowered.kind, lowered.width, rows, natural), 1, 2)
    return jnp.where(placed.inside[:, None, :], logs, 0.0)


def log_likelihoods(kind: int, width: int, rows: jax.Array, natural: jax.Array | None) -> jax.Array:
    """`(..., K)` of rows `(..., width)`; 0 where a row is missing."""
    if kind == PRECOMPUTED:
        return jnp.where(jnp.isnan(rows), 0.0, rows)
    assert natural is not None
    present = jnp.all(rows == rows, axis=-1, keepdims=True)
    filled = jnp.where(present, rows, 0.0)
    return jnp.where(present, _of_kind(kind, width, filled, natural), 0.0)


def _of_kind(kind: int, width: int, rows: jax.Array, natural: jax.Array) -> jax.Array:
    if kind == TABLE:
        codes = rows[..., 0].astype(jnp.int32)
        known = (codes >= 0) & (codes < natural.shape[1])  # what is no category is impossible
        logs = jnp.moveaxis(natural[:, jnp.where(known, codes, 0)], 0, -1)
        return jnp.where(known[..., None], logs, -jnp.inf)
    if kind == LINEAR:
        return natural[:, 0] + _product(rows, natural[:, 1:].T)
    away = rows[..., None, :] - natural[:, 1 : 1 + width]
    total, place = natural[:, 0], 1 + width
    for i in range(width):
        z = jnp.sum(natural[:, place : place + i + 1] * away[..., : i + 1], axis=-1)
        total, place = total - 0.5 * z * z, place + i + 1
    return total


def expected_sums(
    kind: int, width: int, n_sums: int, rows: jax.Array, natural: jax.Array, gamma: jax.Array
) -> jax.Array:
    """`(..., K, sums)` of rows `(time, ..., width)` with probabilities `(time, ..., K)`, summed over time."""
    present = jnp.all(rows == rows, axis=-1, keepdims=True)
    filled, gamma = jnp.where(present, rows, 0.0), jnp.where(present, gamma, 0.0)
    if kind == PRECOMPUTED:
        return jnp.zeros((*gamma.shape[1:], 0), gamma.dtype)
    if kind == TABLE:
        seen = jax.nn.one_hot(filled[..., 0].astype(jnp.int32), n_sums, dtype=gamma.dtype)
        return jnp.einsum("t...k,t...s->...ks", gamma, seen, precision=jax.lax.Precision.HIGHEST)
    if kind == LINEAR:
        visits = jnp.sum(gamma, axis=0)[..., None]
        sums = jnp.einsum("t...k,t...d->...kd", gamma, filled, precision=jax.lax.Precision.HIGHEST)
        return jnp.concatenate([visits, sums], axis=-1)
    assert kind == GAUSSIAN
    away = filled[..., None, :] - natural[:, 1 : 1 + width]
    products = [away[..., i] * away[..., j] for i in range(width) for j in range(i, width)]
    terms = [jnp.ones_like(gamma), *(away[..., i] for i in range(width)), *products]
    return jnp.stack([jnp.sum(gamma * term, axis=0) for term in terms], axis=-1)


def _product(one: jax.Array, other: jax.Array) -> jax.Array:
    return jnp.matmul(one, other, precision=jax.lax.Precision.HIGHEST)  # a GPU would round its factors otherwise
