"""One window by the reference recursions, in the terms of the fused kernels: for windows whose proof failed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from longhmm.kernels.forms import Form
from longhmm.kernels.native import GAUSSIAN, GIVEN, LINEAR, TABLE
from longhmm.messages.forward_backward import forward_backward
from longhmm.messages.scaling import safe_log


def careful_window(
    form: Form, values: jax.Array, begin: Any, core: Any, at_start: Any, laws: tuple[jax.Array, ...], packs: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Log likelihood, first states, transitions, sums `(K, sums)` and posteriors `(time, K)` of one window's core.

    Args:
        values: `(time, width)`, NaN where missing or outside.
        begin, core: the first row of the core, and one past its last.
        at_start: whether the window begins at the first row that is inside it, row `at_start[1]`.
        laws: transition matrix, law of first states, law before the window.
    """
    transition, initial, start = laws
    opens, opening_row = at_start
    times = jnp.arange(values.shape[0])
    present = jnp.all(values == values, axis=1)
    filled = jnp.where(present[:, None], values, 0.0)
    logs = jnp.where(present[:, None], form_logs(form, filled, packs), 0.0)
    # Rows before the window are cut off by rolling it to the front: the recursion knows only row 0 as an opening.
    shift = -opening_row
    logs, inside = jnp.roll(logs, shift, axis=0), (times >= begin - opening_row) & (times < core - opening_row)
    found = forward_backward(
        safe_log(start)[:, None],
        jnp.zeros((start.shape[0], 1), logs.dtype),
        jnp.asarray(opens)[None],
        initial,
        transition,
        logs[:, :, None],
        inside[:, None],
    )
    gamma = jnp.where(inside[:, None], found.gamma[:, :, 0], 0.0)
    first = jnp.where(opens & (begin == opening_row), gamma[0], 0.0)
    likelihood = jnp.sum(jnp.where(inside, found.log_normaliser[:, 0], 0.0))
    gamma = jnp.roll(gamma, -shift, axis=0)
    sums = form_sums(form, filled, gamma * present[:, None], packs)
    return likelihood, first, found.transitions[:, :, 0], sums, gamma


def form_logs(form: Form, values: jax.Array, packs: jax.Array) -> jax.Array:
    """Log likelihoods `(time, K)` of rows without missing numbers."""
    if form.kind == GIVEN:
        return values
    if form.kind == TABLE:
        return packs[:, values[:, 0].astype(jnp.int32)].T
    if form.kind == LINEAR:
        return packs[:, 0] + _product(values, packs[:, 1:].T)
    dim = form.width
    away = values[:, None, :] - packs[:, 1 : 1 + dim]
    total, place = packs[:, 0], 1 + dim
    for i in range(dim):
        z = jnp.sum(packs[:, place : place + i + 1] * away[:, :, : i + 1], axis=-1)
        total, place = total - 0.5 * z * z, place + i + 1
    return total


def form_sums(form: Form, values: jax.Array, gamma: jax.Array, packs: jax.Array) -> jax.Array:
    """What the form asks to be summed, `(K, sums)`."""
    if form.kind == GIVEN:
        return jnp.zeros((gamma.shape[1], 0), gamma.dtype)
    if form.kind == TABLE:
        return _product(gamma.T, jax.nn.one_hot(values[:, 0].astype(jnp.int32), form.sums, dtype=gamma.dtype))
    if form.kind == LINEAR:
        return jnp.concatenate([jnp.sum(gamma, axis=0)[:, None], _product(gamma.T, values)], axis=1)
    assert form.kind == GAUSSIAN
    dim = form.width
    away = values[:, None, :] - packs[:, 1 : 1 + dim]
    products = [away[:, :, i] * away[:, :, j] for i in range(dim) for j in range(i, dim)]
    terms = [jnp.ones_like(gamma), *(away[:, :, i] for i in range(dim)), *products]
    return jnp.stack([jnp.sum(gamma * term, axis=0) for term in terms], axis=1)


def _product(one: jax.Array, other: jax.Array) -> jax.Array:
    return jnp.matmul(one, other, precision=jax.lax.Precision.HIGHEST)  # a GPU would round its factors otherwise
