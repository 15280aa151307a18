"""The fused GPU kernel in Pallas (Triton): windows in, expected statistics of each window out, in float32.

One window in each lane, the states unrolled into registers: the recursions of the C++ kernel (see native/group.h),
with forward messages kept in device memory between the two passes. Likelihoods are divided by their peak, forward
messages sum to one, and backward messages are scaled so that `sum_k alpha beta = 1`; a bounded beta proves that
underflow lost nothing. A window without that proof is flagged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from longhmm.backends.pallas.counts import count_transitions
from longhmm.backends.pallas.plan import Found, Lanes, Laws, Plan
from longhmm.backends.pallas.rows import add_sums, likelihoods
from longhmm.backends.protocol import TABLE

TINY = float(np.finfo(np.float32).tiny)
EPSILON = float(np.finfo(np.float32).eps)


def run_windows(plan: Plan, rows: jax.Array, lanes: Lanes, laws: Laws) -> Found:
    """Carry out both passes over all windows; `rows` is flat."""
    n, count = plan.states, lanes.origin.shape[0]
    one = jax.ShapeDtypeStruct
    call = partial(_call, plan, count)
    alpha, log_likelihood, lost_forward = call(
        _forward,
        (one(((plan.core + 1) * n, count), jnp.float32), one((count,), jnp.float32), one((count,), jnp.int32)),
    )(rows, *lanes, *laws)
    fused = plan.config.fused_counts
    weighted = (n * n if fused else plan.core * n, count)
    first, result, sums, edges, lost, gamma = call(
        _backward,
        (
            one((n, count), jnp.float32),
            one(weighted, jnp.float32),
            one((max(1, n * plan.form.sums * count),), jnp.float32),
            one((2 * n, count), jnp.float32),
            one((count,), jnp.int32),
            one(((plan.gamma + plan.config.lanes) * n,), jnp.float32),
        ),
    )(rows, *lanes, *laws, alpha)
    counts = result.reshape(n, n, count) if fused else count_transitions(plan, count, alpha, result)
    own = alpha.reshape(plan.core + 1, n, count)
    return Found(
        log_likelihood,
        first,
        counts,
        sums[: n * plan.form.sums * count].reshape(n, plan.form.sums, count),
        jnp.concatenate([own[:1], own[-1:], edges.reshape(2, n, count)]),
        (lost_forward + lost) > 0,
        gamma[: plan.gamma * n].reshape(plan.gamma, n),
    )


def _call(plan: Plan, count: int, body: Callable[..., None], shapes: Sequence[jax.ShapeDtypeStruct]) -> Any:
    return pl.pallas_call(
        partial(body, plan, count),
        out_shape=shapes,
        grid=(count // plan.config.lanes,),
        compiler_params=triton.CompilerParams(num_warps=plan.config.warps, num_stages=1),
        interpret=plan.interpret,
    )


class _Reader:
    """What both passes read: rows, likelihoods, and the parameters, from registers or from memory."""

    def __init__(self, plan: Plan, rows: Any, lanes: Lanes, laws: Laws) -> None:
        self.plan, self.rows, self.laws = plan, rows, laws
        self.lane = pl.program_id(0) * plan.config.lanes  # once: loops must not ask for it
        self.own = pl.ds(self.lane, plan.config.lanes)
        self.origin, self.begin, self.stop = lanes.origin[self.own], lanes.begin[self.own], lanes.stop[self.own]
        self.core, self.opens = lanes.core[self.own], lanes.opens[self.own] != 0
        n, self.table = plan.states, plan.form.kind == TABLE
        held = plan.config.held
        self._matrix = [laws.transition[i] for i in range(n * n)] if held else None
        self._packs = [laws.packs[i] for i in range(n * plan.form.pack)] if held and not self.table else None

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
            return triton.load(self.laws.packs.at[i])
        return self.laws.packs[i] if self._packs is None else self._packs[i]

    def forward(self, law: Sequence[jax.Array], stored: Any, at: Any) -> list[jax.Array]:
        """`sum_i law_i A[i, j]`; the law also lies in the rows of `stored` from `at` on."""
        n = len(law)
        if self._matrix is not None:
            return [_sum(self._matrix[i * n + j] * law[i] for i in range(n)) for j in range(n)]
        return self._looped(n, stored, at, lambda i, j: i * n + j)

    def back(self, message: Sequence[jax.Array], stored: Any, at: Any) -> list[jax.Array]:
        """`sum_j A[i, j] message_j`; the message also lies in the rows of `stored` from `at` on."""
        n = len(message)
        if self._matrix is not None:
            return [_sum(self._matrix[i * n + j] * message[j] for j in range(n)) for i in range(n)]
        return self._looped(n, stored, at, lambda j, i: i * n + j)

    def _looped(self, n: int, stored: Any, at: Any, entry: Callable[[Any, int], Any]) -> list[jax.Array]:
        """The product with its inner sum as a loop over memory: written out, K x K terms take minutes to compile."""

        def add(term: Any, sums: Any) -> Any:
            each = stored[at + term, self.own]
            return tuple(sums[k] + self.laws.transition[entry(term, k)] * each for k in range(n))

        zero = jnp.zeros((self.plan.config.lanes,), jnp.float32)
        return list(jax.lax.fori_loop(0, n, add, (zero,) * n))


def _forward(plan: Plan, count: int, rows: Any, *references: Any) -> None:
    lanes, laws = Lanes(*references[:5]), Laws(*references[5:9])
    alpha, log_likelihood, lost_out = references[9:]
    read = _Reader(plan, rows, lanes, laws)
    n, width, size = plan.states, plan.form.width, plan.config.lanes
    zero = jnp.zeros((size,), jnp.float32)
    initial = [laws.initial[k] for k in range(n)]
    law = [zero + laws.start[k] for k in range(n)]

    def store(law: Sequence[jax.Array], at: Any) -> None:
        for k in range(n):
            alpha[at + k, read.own] = law[k]

    def step(r: Any, at: Any, moved: Sequence[jax.Array], row: Sequence[jax.Array], least: jax.Array) -> Any:
        """One row: the new law is stored; its prediction, the next row, the normaliser and the peak go on."""
        following = read.row(r + 1)  # asked for long before it is needed
        _, _, b, peak = read.seen(row)
        joint = [moved[k] * b[k] for k in range(n)]
        c = _sum(joint)
        least = jnp.minimum(least, c)
        c = jnp.maximum(c, TINY)
        scale = 1.0 / c
        law = [each * scale for each in joint]
        store(law, at)
        return read.forward(law, alpha, at), following, least, c, peak

    def opened(r: Any, moved: Sequence[jax.Array]) -> list[jax.Array]:
        here = (read.begin == r) & read.opens
        return [jnp.where(here, initial[k], moved[k]) for k in range(n)]

    def margin(r: Any, carry: Any) -> Any:
        moved, row, least = carry[:n], carry[n : n + width], carry[n + width]
        moved, row, least, _, _ = step(r, 0, opened(r, moved), row, least)
        return (*moved, *row, least)

    def core(r: Any, carry: Any) -> Any:
        moved, row, (least, logs, peaks) = carry[:n], carry[n : n + width], carry[n + width :]
        moved, row, least, c, peak = step(plan.left + r, (r + 1) * n, moved, row, least)
        mine = r < read.core
        return (*moved, *row, least, logs + jnp.where(mine, jnp.log(c), 0.0), peaks + jnp.where(mine, peak, 0.0))

    store(law, 0)
    carry = (*read.forward(law, alpha, 0), *read.row(0), zero + 1.0)
    carry = jax.lax.fori_loop(0, plan.left, margin, carry)
    carry = (*opened(plan.left, carry[:n]), *carry[n:], zero, zero)
    carry = jax.lax.fori_loop(0, plan.core, core, carry)
    least, logs, peaks = carry[n + width :]
    log_likelihood[read.own] = logs + peaks * math.log(2.0)
    lost_out[read.own] = jnp.where(least > TINY, 0, 1).astype(jnp.int32)  # also where it is not a number


def _backward(plan: Plan, count: int, rows: Any, *references: Any) -> None:
    lanes, laws, alpha = Lanes(*references[:5]), Laws(*references[5:9]), references[9]
    first_out, result, sums_out, edges, lost_out, gamma_out = references[10:]
    read = _Reader(plan, rows, lanes, laws)
    n, width, size, form = plan.states, plan.form.width, plan.config.lanes, plan.form
    fused, total = plan.config.fused_counts, plan.left + plan.core + plan.right
    zero = jnp.zeros((size,), jnp.float32)
    lane = read.lane + jnp.arange(size, dtype=jnp.int32)
    kept = 0 if read.table else n * form.sums  # a table's sums are added where they lie, each lane in its own column
    if read.table:

        def clear(i: Any, _: Any) -> Any:
            sums_out[pl.ds(i * count + read.lane, size)] = zero
            return _

        jax.lax.fori_loop(0, n * form.sums, clear, 0)

    def keep(weighted: Sequence[jax.Array], at: Any) -> None:
        for k in range(0 if plan.config.held else n):
            result[at + k, read.own] = weighted[k]

    def margin(i: Any, carry: Any) -> Any:
        r = total - 1 - i
        beta, row, least = carry[:n], carry[n : n + width], carry[n + width]
        following = read.row(r - 1)
        _, _, b, _ = read.seen(row)
        weighted = [beta[k] * b[k] for k in range(n)]
        keep(weighted, 0)  # where the core's first row will go, in the end
        beta = read.back(weighted, result, 0)
        top = beta[0]
        for each in beta[1:]:
            top = jnp.maximum(top, each)
        scale = 1.0 / jnp.maximum(top, TINY)
        return (*[each * scale for each in beta], *following, jnp.minimum(least, top))

    def core(i: Any, carry: Any) -> Any:
        r = plan.core - 1 - i
        parts = _split(carry, (n, n, width, 2, kept, n * n if fused else 0, n))
        beta, a, row, (least, highest), sums, counts, _ = parts
        before = [alpha[r * n + k, read.own] for k in range(n)]
        following = read.row(plan.left + r - 1)
        filled, present, b, _ = read.seen(row)
        mine = r < read.core
        gamma = [a[k] * beta[k] for k in range(n)]
        for each in beta:
            highest = jnp.maximum(highest, each)
        weighted = [b[k] * beta[k] for k in range(n)]
        keep(weighted, r * n)
        beta = read.back(weighted, result, r * n)
        c = _sum(before[k] * beta[k] for k in range(n))
        opening = (r == 0) & read.opens & (read.begin == plan.left)
        # The first row of a sequence has no law before it: what is found there is neither used nor to be trusted.
        least = jnp.minimum(least, jnp.where(opening, 1.0, c))
        scale = 1.0 / jnp.maximum(c, TINY)
        beta = [each * scale for each in beta]
        counted = jnp.where(mine & ~opening, scale, 0.0)
        weighted = [each * counted for each in weighted]
        if fused:
            counts = [counts[i * n + j] + before[i] * weighted[j] for i in range(n) for j in range(n)]
        else:
            for k in range(n):
                result[r * n + k, read.own] = weighted[k]
        if plan.gamma:
            # Rows of the margins go to rows behind the last, one for each lane.
            nowhere = plan.gamma + lane - read.lane
            at = jnp.where(mine, read.origin // plan.row_stride + plan.left + r, nowhere) * n
            for k in range(n):
                triton.store(gamma_out.at[at + k], gamma[k])
        weight = jnp.where(mine & present, 1.0, 0.0)
        observed = [each * weight for each in gamma]
        if read.table:
            code = filled[0].astype(jnp.int32)
            for k in range(n):
                place = sums_out.at[(code + k * form.sums) * count + lane]
                triton.store(place, triton.load(place) + observed[k])
        elif kept:
            sums = add_sums(form, n, read.pack, filled, observed, sums)
        return (*beta, *before, *following, least, highest, *sums, *counts, *gamma)

    carry = (*[zero + 1.0] * n, *read.row(total - 1), zero + 1.0)
    carry = jax.lax.fori_loop(0, plan.right, margin, carry)
    beta, row, (least,) = _split(carry, (n, width, 1))
    leaving = [alpha[plan.core * n + k, read.own] for k in range(n)]
    agreed = _sum(leaving[k] * beta[k] for k in range(n))
    least = jnp.minimum(least, agreed)
    scale = 1.0 / jnp.maximum(agreed, TINY)
    for k in range(n):
        edges[k, read.own] = beta[k]
    inner = n * n if fused else 0
    carry = (*[each * scale for each in beta], *leaving, *row, least, *[zero] * (1 + kept + inner + n))
    carry = jax.lax.fori_loop(0, plan.core, core, carry)
    beta, _, _, (least, highest), sums, counts, gamma = _split(carry, (n, n, width, 2, kept, inner, n))
    opening = read.opens & (read.begin == plan.left) & (read.core > 0)
    for k in range(n):
        highest = jnp.maximum(highest, jnp.where(opening, 0.0, beta[k]))
        edges[n + k, read.own] = beta[k]
        first_out[k, read.own] = jnp.where(opening, gamma[k], 0.0)
    for at, each in enumerate(counts):
        result[at, read.own] = each
    for at, each in enumerate(sums):
        sums_out[pl.ds(at * count + read.lane, size)] = each
    bound = EPSILON / TINY / total / n
    lost_out[read.own] = jnp.where((least > TINY) & (highest < bound), 0, 1).astype(jnp.int32)


def _sum(terms: Any) -> jax.Array:
    total = None
    for each in terms:
        total = each if total is None else total + each
    assert total is not None
    return total


def _split(carry: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    parts, at = [], 0
    for size in sizes:
        parts.append(carry[at : at + size])
        at += size
    return parts
