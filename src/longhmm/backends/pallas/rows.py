"""The two ends of the GPU kernel that know what an observation is: rows to likelihoods, and posteriors to sums.

Everything here runs inside a kernel, on vectors that hold one number of each window. Logarithms are to base 2, the
base of the hardware's exponential, so packs are scaled once outside (`scaled_packs`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from longhmm.backends.pallas.plan import Form
from longhmm.backends.protocol import GAUSSIAN, LINEAR, PRECOMPUTED, TABLE

LOG2E = 1.0 / math.log(2.0)
LOWEST = -3.0e38

Vector = jax.Array


def scaled_packs(form: Form, packs: jax.Array) -> jax.Array:
    """Packs `(..., K, pack)` for logarithms to base 2; the half of the quadratic form goes into the whitening."""
    if form.kind != GAUSSIAN:
        return packs * LOG2E
    dim = form.width
    constant, mean, whitening = packs[..., :1], packs[..., 1 : 1 + dim], packs[..., 1 + dim :]
    return jnp.concatenate([constant * LOG2E, mean, whitening * math.sqrt(0.5 * LOG2E)], axis=-1)


def likelihoods(
    form: Form, states: int, pack: Any, row: Sequence[Vector], present: Vector
) -> tuple[list[Vector], Vector]:
    """Likelihoods of one row divided by the largest, and the base-2 logarithm of that; ones and 0 where missing.

    `pack(i)` is number i of the flat packs, a scalar or, for a vector i, a vector.
    """
    logs = _logs(form, states, pack, row)
    top = logs[0]
    for each in logs[1:]:
        top = jnp.maximum(top, each)
    top = jnp.where(present & (top > LOWEST), top, 0.0)  # all impossible: zeros, not NaN
    return [jnp.where(present, jnp.exp2(each - top), 1.0) for each in logs], top


def table_code(form: Form, number: Vector) -> tuple[Vector, Vector]:
    """The row of a table that a number stands for, and whether there is one."""
    inside = (number > -1) & (number < form.pack)
    return jnp.where(inside, number, 0).astype(jnp.int32), inside


def _logs(form: Form, states: int, pack: Any, row: Sequence[Vector]) -> list[Vector]:
    if form.kind == PRECOMPUTED:
        return [each * LOG2E for each in row]
    logs = []
    for k in range(states):
        at = k * form.pack
        if form.kind == TABLE:
            code, inside = table_code(form, row[0])
            logs.append(jnp.where(inside, pack(code + at), -jnp.inf))
        elif form.kind == LINEAR:
            value = pack(at) + pack(at + 1) * row[0]
            for i in range(1, form.width):
                value = value + pack(at + 1 + i) * row[i]
            logs.append(value)
        else:
            value = pack(at)
            away = [row[i] - pack(at + 1 + i) for i in range(form.width)]
            place = at + 1 + form.width
            for i in range(form.width):
                z = pack(place) * away[0]
                for j in range(1, i + 1):
                    z = z + pack(place + j) * away[j]
                value = value - z * z
                place += i + 1
            logs.append(value)
    return logs


def add_sums(
    form: Form, states: int, pack: Any, row: Sequence[Vector], gamma: Sequence[Vector], sums: Sequence[Vector]
) -> list[Vector]:
    """The sums of every state with one more row; `gamma` is 0 where it does not count. For GAUSSIAN and LINEAR."""
    found = list(sums)
    for k in range(states):
        at = k * form.sums
        found[at] = found[at] + gamma[k]
        if form.kind == LINEAR:
            for i in range(form.width):
                found[at + 1 + i] = found[at + 1 + i] + gamma[k] * row[i]
            continue
        away = [row[i] - pack(k * form.pack + 1 + i) for i in range(form.width)]
        place = at + 1 + form.width
        for i in range(form.width):
            weighted = gamma[k] * away[i]
            found[at + 1 + i] = found[at + 1 + i] + weighted
            for j in range(i, form.width):
                found[place] = found[place] + weighted * away[j]
                place += 1
    return found
