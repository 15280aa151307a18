"""The two ends of the GPU kernel that know what an observation is: rows to likelihoods, and posteriors to sums.

Everything here runs inside a kernel, on vectors that hold one number of each window. Logarithms are to base 2, the
base of the hardware's exponential, so natural parameters are scaled once outside (`flat_parameters`).
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from longhmm.backends.pallas.plan import Lanes, Parameters, Plan
from longhmm.backends.protocol import GAUSSIAN, LINEAR, PRECOMPUTED, TABLE

LOG2E = 1.0 / math.log(2.0)
LOWEST = -3.0e38

Vector = jax.Array


def flat_parameters(plan: Plan, transition: Any, initial: Any, start: Any, natural: Any) -> Parameters:
    """Parameters as the kernel reads them: `(K, pack)` natural ones for logarithms to base 2."""
    packs = jnp.zeros(1) if natural is None else natural * scales(plan)
    narrow = (each.astype(jnp.float32) for each in (transition.reshape(-1), initial, start, packs.reshape(-1)))
    return Parameters(*narrow)


def scales(plan: Plan) -> np.ndarray:
    """`(pack,)`, from natural parameters to those of the kernel: logarithms to base 2, and, for GAUSSIAN, the half of
    the quadratic form in the whitening."""
    found = np.full(plan.pack, LOG2E)
    if plan.kind == GAUSSIAN:
        found[1 : 1 + plan.width], found[1 + plan.width :] = 1.0, math.sqrt(0.5 * LOG2E)
    return found


class Reader:
    """What both passes read: rows, likelihoods, and the parameters, from registers or from memory."""

    def __init__(self, plan: Plan, rows: Any, lanes: Lanes, parameters: Parameters) -> None:
        self.plan, self.rows, self.parameters = plan, rows, parameters
        self.lane = pl.program_id(0) * plan.config.lanes  # once: loops must not ask for it
        self.own = pl.ds(self.lane, plan.config.lanes)
        self.origin, self.begin, self.stop = lanes.origin[self.own], lanes.begin[self.own], lanes.stop[self.own]
        self.core, self.opens = lanes.core[self.own], lanes.opens[self.own] != 0
        n, self.table = plan.states, plan.kind == TABLE
        self.watched = parameters.watched[0] != 0
        held = plan.config.held
        self._matrix = [parameters.transition[i] for i in range(n * n)] if held else None
        self._packs = [parameters.packs[i] for i in range(n * plan.pack)] if held and not self.table else None

    def row(self, r: Any) -> list[Vector]:
        """The numbers of row r of every window, NaN outside."""
        inside = (r >= self.begin) & (r < self.stop)
        at = self.origin + r * self.plan.row_stride
        return [
            triton.load(self.rows.at[at + i * self.plan.number_stride], mask=inside, other=math.nan)
            for i in range(self.plan.width)
        ]

    def seen(self, row: Sequence[Vector]) -> tuple[list[Vector], Vector, list[Vector], Vector]:
        """The row with zeros where missing, whether it is there, its likelihoods divided by the largest, and the base-2
        logarithm of that; ones and 0 where it is missing."""
        present = reduce(operator.and_, (each == each for each in row))
        filled = [jnp.where(present, each, 0.0) for each in row]
        logs = self._logs(filled)
        top = reduce(jnp.maximum, logs)
        top = jnp.where(present & (top > LOWEST), top, 0.0)  # all impossible: zeros, not NaN
        return filled, present, [jnp.where(present, jnp.exp2(each - top), 1.0) for each in logs], top

    def code(self, number: Vector) -> tuple[Vector, Vector]:
        """The row of a table that a number stands for, and whether there is one."""
        inside = (number > -1) & (number < self.plan.pack)
        return jnp.where(inside, number, 0).astype(jnp.int32), inside

    def _pack(self, i: Any) -> Any:
        """Number i of the flat packs, a scalar or, for a vector i, a vector."""
        if self.table:
            return triton.load(self.parameters.packs.at[i])
        return self.parameters.packs[i] if self._packs is None else self._packs[i]

    def _logs(self, row: Sequence[Vector]) -> list[Vector]:
        plan, logs = self.plan, []
        if plan.kind == PRECOMPUTED:
            return [each * LOG2E for each in row]
        for at in range(0, plan.states * plan.pack, plan.pack):
            if self.table:
                code, inside = self.code(row[0])
                value = jnp.where(inside, self._pack(code + at), -jnp.inf)
            elif plan.kind == LINEAR:
                value = self._pack(at) + self._pack(at + 1) * row[0]
                for i in range(1, plan.width):
                    value = value + self._pack(at + 1 + i) * row[i]
            else:
                value, away, place = self._pack(at), self._away(row, at), at + 1 + plan.width
                for i in range(plan.width):
                    z = sum_of(self._pack(place + j) * away[j] for j in range(i + 1))
                    value = value - z * z
                    place += i + 1
            logs.append(value)
        return logs

    def _away(self, row: Sequence[Vector], at: int) -> list[Vector]:
        return [row[i] - self._pack(at + 1 + i) for i in range(self.plan.width)]

    def add_sums(self, row: Sequence[Vector], gamma: Sequence[Vector], sums: Sequence[Vector]) -> list[Vector]:
        """The sums of every state with one more row; `gamma` is 0 where it does not count. For GAUSSIAN and LINEAR."""
        plan, found = self.plan, list(sums)
        for k in range(plan.states):
            linear = plan.kind == LINEAR
            away = row if linear else self._away(row, k * plan.pack)
            weighted = [gamma[k] * each for each in away]
            terms = [gamma[k], *weighted]
            if not linear:
                terms += [weighted[i] * away[j] for i in range(plan.width) for j in range(i, plan.width)]
            for at, term in enumerate(terms, k * plan.sums):
                found[at] = found[at] + term
        return found

    def forward(self, message: Sequence[Vector], stored: Any, at: Any) -> list[Vector]:
        """`sum_i message_i A[i, j]`; the message also lies in the rows of `stored` from `at` on."""
        return self._product(message, stored, at, lambda i, j: i * len(message) + j)

    def back(self, message: Sequence[Vector], stored: Any, at: Any) -> list[Vector]:
        """`sum_j A[i, j] message_j`; the message also lies in the rows of `stored` from `at` on."""
        return self._product(message, stored, at, lambda j, i: i * len(message) + j)

    def _product(
        self, message: Sequence[Vector], stored: Any, at: Any, entry: Callable[[Any, int], Any]
    ) -> list[Vector]:
        n, matrix = len(message), self._matrix
        if matrix is not None:
            return [sum_of(matrix[entry(term, k)] * message[term] for term in range(n)) for k in range(n)]

        # The inner sum as a loop over memory: written out, K x K terms take minutes to compile.
        def add(term: Any, sums: Any) -> Any:
            each = stored[at + term, self.own]
            return tuple(sums[k] + self.parameters.transition[entry(term, k)] * each for k in range(n))

        return list(jax.lax.fori_loop(0, n, add, (self.zero,) * n))

    def put(self, to: Any, at: Any, vectors: Sequence[Vector]) -> None:
        """Write vectors into the rows of a table from `at` on, each lane in its own column."""
        for i, each in enumerate(vectors):
            to[at + i, self.own] = each

    @property
    def zero(self) -> Vector:
        return jnp.zeros((self.plan.config.lanes,), jnp.float32)

    def if_watched(self, find: Callable[[], Sequence[Vector]], count: int) -> list[Vector]:
        """What `find` gives, so many vectors, where losses are watched; else zeros, at no cost."""
        return list(jax.lax.cond(self.watched, lambda: tuple(find()), lambda: (self.zero,) * count))


def sum_of(terms: Iterable[Vector]) -> Vector:
    """The sum of some vectors."""
    return reduce(operator.add, terms)
