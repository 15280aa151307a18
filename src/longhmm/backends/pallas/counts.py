"""Transitions counted in a pass of their own, for models whose counts do not fit into registers beside the rest."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from longhmm.backends.pallas.plan import Plan


def count_transitions(plan: Plan, count: int, alpha: jax.Array, weighted: jax.Array) -> jax.Array:
    """`sum_t alpha[t - 1, i] weighted[t, j]` of every window, `(K, K, W)`, a tile of states at a time."""
    n = plan.states
    side = min(plan.config.tile, n)
    tiles = -(-n // side)
    splits = min(plan.config.splits, plan.core)
    found = pl.pallas_call(
        partial(_count_tile, plan, side, tiles, splits),
        out_shape=jax.ShapeDtypeStruct((splits * tiles * tiles * side * side, count), jnp.float32),
        grid=(count // plan.config.lanes, splits, tiles * tiles),
        compiler_params=triton.CompilerParams(num_warps=plan.config.warps, num_stages=1),
        interpret=plan.interpret,
    )(alpha, weighted)
    found = found.reshape(splits, tiles, tiles, side, side, count).sum(axis=0)
    return found.transpose(0, 2, 1, 3, 4).reshape(tiles * side, tiles * side, count)[:n, :n]


def _count_tile(plan: Plan, side: int, tiles: int, splits: int, alpha: Any, weighted: Any, out: Any) -> None:
    n, size = plan.states, plan.config.lanes
    own = pl.ds(pl.program_id(0) * size, size)
    split, tile = pl.program_id(1), pl.program_id(2)
    rows = -(-plan.core // splits)
    # States beyond the last repeat it; what they give is cut off.
    from_states = [jnp.minimum(tile // tiles * side + i, n - 1) for i in range(side)]
    to_states = [jnp.minimum(tile % tiles * side + j, n - 1) for j in range(side)]

    def step(r: Any, counts: Any) -> Any:
        before = [alpha[r * n + i, own] for i in from_states]
        after = [weighted[r * n + j, own] for j in to_states]
        return tuple(counts[i * side + j] + before[i] * after[j] for i in range(side) for j in range(side))

    begin = split * rows
    zero = jnp.zeros((size,), jnp.float32)
    counts = jax.lax.fori_loop(begin, jnp.minimum(begin + rows, plan.core), step, (zero,) * (side * side))
    for at, each in enumerate(counts):
        out[(split * tiles * tiles + tile) * side * side + at, own] = each
