"""The two ends of the GPU kernel that know what an observation is: rows to likelihoods, and posteriors to sums.

Everything here runs inside a kernel, on vectors that hold one number of each window. Logarithms are to base 2, the
base of the hardware's exponential, so packs are scaled once outside (`scaled_packs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from longhmm.backends.pallas.plan import Form, Lanes, Parameters, Plan
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


class Reader:
    """What both passes read: rows, likelihoods, and the parameters, from registers or from memory."""

    def __init__(self, plan: Plan, rows: Any, lanes: Lanes, parameters: Parameters) -> None:
        self.plan, self.rows, self.parameters = plan, rows, parameters
        self.lane = pl.program_id(0) * plan.config.lanes  # once: loops must not ask for it
        self.own = pl.ds(self.lane, plan.config.lanes)
        self.origin, self.begin, self.stop = lanes.origin[self.own], lanes.begin[self.own], lanes.stop[self.own]
        self.core, self.opens = lanes.core[self.own], lanes.opens[self.own] != 0
        n, self.table = plan.states, plan.form.kind == TABLE
        self.watched = parameters.watched[0] != 0
        held = plan.config.held
        self._matrix = [parameters.transition[i] for i in range(n * n)] if held else None
        self._packs = [parameters.packs[i] for i in range(n * plan.form.pack)] if held and not self.table else None

    def row(self, r: Any) -> list[jax.Array]:
        """The numbers of row r of every window, NaN outside."""
        inside = (r >= self.begin) & (r < self.stop)
        at = self.origin + r * self.plan.row_stride
        return [
            triton.load(self.rows.at[at + i * self.plan.number_stride], mask=inside, other=math.nan)
            for i in range(self.plan.form.width)
        ]

    def seen(self, row: Sequence[jax.Array]) -> tuple[list[jax.Array], jax.Array, list[jax.Array], jax.Array]:
        """The row with zeros where missing, whether it is there, its likelihoods and their peak."""
        present = row[0] == row[0]
        for each in row[1:]:
            present = present & (each == each)
        filled = [jnp.where(present, each, 0.0) for each in row]
        return filled, present, *likelihoods(self.plan.form, self.plan.states, self.pack, filled, present)

    def pack(self, i: Any) -> Any:
        if self.table:
            return triton.load(self.parameters.packs.at[i])
        return self.parameters.packs[i] if self._packs is None else self._packs[i]

    def forward(self, message: Sequence[jax.Array], stored: Any, at: Any) -> list[jax.Array]:
        """`sum_i law_i A[i, j]`; the message also lies in the rows of `stored` from `at` on."""
        n = len(message)
        if self._matrix is not None:
            return [sum_of(self._matrix[i * n + j] * message[i] for i in range(n)) for j in range(n)]
        return self._looped(n, stored, at, lambda i, j: i * n + j)

    def back(self, message: Sequence[jax.Array], stored: Any, at: Any) -> list[jax.Array]:
        """`sum_j A[i, j] message_j`; the message also lies in the rows of `stored` from `at` on."""
        n = len(message)
        if self._matrix is not None:
            return [sum_of(self._matrix[i * n + j] * message[j] for j in range(n)) for i in range(n)]
        return self._looped(n, stored, at, lambda j, i: i * n + j)

    def if_watched(self, find: Callable[[], Sequence[jax.Array]], count: int) -> list[jax.Array]:
        """What `find` gives, so many vectors, where losses are watched; else zeros, at no cost."""
        zero = jnp.zeros((self.plan.config.lanes,), jnp.float32)
        return list(jax.lax.cond(self.watched, lambda: tuple(find()), lambda: (zero,) * count))

    def _looped(self, n: int, stored: Any, at: Any, entry: Callable[[Any, int], Any]) -> list[jax.Array]:
        """The product with its inner sum as a loop over memory: written out, K x K terms take minutes to compile."""

        def add(term: Any, sums: Any) -> Any:
            each = stored[at + term, self.own]
            return tuple(sums[k] + self.parameters.transition[entry(term, k)] * each for k in range(n))

        zero = jnp.zeros((self.plan.config.lanes,), jnp.float32)
        return list(jax.lax.fori_loop(0, n, add, (zero,) * n))


def sum_of(terms: Any) -> jax.Array:
    """The sum of some vectors."""
    found = None
    for each in terms:
        found = each if found is None else found + each
    assert found is not None
    return found


def split(carry: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """The parts, of these sizes, that the carry of a loop consists of."""
    parts, at = [], 0
    for size in sizes:
        parts.append(carry[at : at + size])
        at += size
    return parts
