"""Chunks side by side for the reference backend: arrays are shaped (time, state, chunk)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.kinds import log_likelihoods
from longhmm.backends.protocol import PAIR, Lowered, Varying
from longhmm.data.layout import Layout
from longhmm.inference import operators
from longhmm.inference.scaling import safe_log

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


def chunk_logs(lowered: Lowered, placed: Placed, dtype: Any) -> jax.Array:
    """Log likelihoods `(time, K, W)`, of pairs `(time, K, K, W)`; 0 outside of chunks and where rows are missing."""
    rows = jnp.asarray(lowered.rows)[placed.rows].astype(dtype)
    if lowered.kind == PAIR:
        logs = jnp.moveaxis(jnp.where(jnp.isnan(rows), 0.0, rows), 1, 3)
        return jnp.where(placed.inside[:, None, None, :], logs, 0.0)
    natural = None if lowered.natural is None else lowered.natural.astype(dtype)
    logs = jnp.swapaxes(log_likelihoods(lowered.kind, lowered.width, rows, natural), 1, 2)
    return jnp.where(placed.inside[:, None, :], logs, 0.0)


def chunk_operators(logs: jax.Array, transition: Any, initial: Any, layout: Layout, placed: Placed) -> jax.Array:
    """One operator per row (see `inference.operators`), also where one matrix serves all rows."""
    matrices = transition
    if isinstance(transition, Varying):
        by_row = jnp.asarray(transition.matrices)[jnp.asarray(transition.index)[placed.rows]]
        matrices = jnp.moveaxis(by_row, 1, 3)
    found = operators.log_operators(matrices, logs)
    if logs.ndim == 4:
        return found  # the state before the first row has the initial distribution
    return operators.opening(found, safe_log(jnp.asarray(initial)), logs[0], jnp.asarray(layout.opens) > 0)


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
