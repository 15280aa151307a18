"""The fused GPU kernel in Pallas (Triton): windows in, expected statistics of each window out, in float32.

One window in each lane, the states unrolled into registers: the recursions of the C++ kernel (see native/group.h),
with forward messages kept in device memory between the two passes. Likelihoods are divided by their peak, forward
messages sum to one, and backward messages are scaled so that `sum_k alpha beta = 1`. That underflow lost nothing is
shown as there: by normalisers that are large enough for the least transition or, where a state may be left for good,
by a bound of what was lost that is carried along. A window without that is flagged.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from longhmm.backends.pallas.plan import UNKNOWN, Found, Lanes, Parameters, Plan
from longhmm.backends.pallas.rows import Reader, sum_of
from longhmm.backends.programs import platform
from longhmm.inference.scaling import least_normaliser

TINY = float(np.finfo(np.float32).tiny)
NEGLIGIBLE = 8 * float(np.finfo(np.float32).eps)


def run_windows(plan: Plan, rows: jax.Array, lanes: Lanes, parameters: Parameters) -> Found:
    """Carry out both passes over all windows."""
    n, count = plan.states, lanes.origin.shape[0]
    matrix = parameters.transition.reshape(n, n)
    least_allowed = least_normaliser(matrix, plan.left + plan.core + plan.right)
    watched = ~(least_allowed < jnp.min(matrix))
    parameters = parameters._replace(watched=watched.astype(jnp.int32)[None])
    each, by_state, flag = _floats(count), _floats(n, count), jax.ShapeDtypeStruct((count,), jnp.int32)
    grid, given = (count // plan.config.lanes,), (rows.reshape(-1), *lanes, *parameters)
    forward = (_floats((plan.core + 1) * n, count), each, by_state, each, flag)
    alpha, log_likelihood, gone, least, lost_forward = _call(plan, partial(_forward, plan), forward, grid)(*given)
    fused, n_sums = plan.config.fused_counts, n * plan.sums * count
    backward = (
        by_state,
        _floats(n * n if fused else plan.core * n, count),
        _floats(max(1, n_sums)),
        _floats(2 * n, count),
        each,
        flag,
        _floats((plan.gamma + plan.config.lanes) * n),
    )
    run = _call(plan, partial(_backward, plan, count), backward, grid)
    first, result, sums, edges, least_back, lost, gamma = run(*given, alpha, gone)
    sound = jnp.minimum(least, least_back) > jnp.where(watched, TINY, least_allowed)  # false where it is no number
    counts = result.reshape(n, n, count) if fused else count_transitions(plan, count, alpha, result)
    own = alpha.reshape(plan.core + 1, n, count)
    return Found(
        log_likelihood,
        first,
        counts,
        sums[:n_sums].reshape(n, plan.sums, count),
        jnp.concatenate([own[:1], own[-1:], edges.reshape(2, n, count)]),
        ~sound | (lost_forward + lost > 0),
        gamma[: plan.gamma * n].reshape(plan.gamma, n),
    )


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _call(plan: Plan, body: Callable[..., None], shapes: Any, grid: tuple[int, ...]) -> Any:
    """Without a GPU it is interpreted: slow, for tests."""
    return pl.pallas_call(
        body,
        out_shape=shapes,
        grid=grid,
        compiler_params=triton.CompilerParams(num_warps=plan.config.warps, num_stages=1),
        interpret=platform() != "gpu",
    )


def _forward(plan: Plan, rows: Any, *references: Any) -> None:
    lanes, parameters = Lanes(*references[:5]), Parameters(*references[5:10])
    alpha, log_likelihood, gone_out, least_out, lost_out = references[10:]
    read = Reader(plan, rows, lanes, parameters)
    n, zero = plan.states, read.zero
    initial = [parameters.initial[k] for k in range(n)]
    message = [zero + parameters.start[k] for k in range(n)]
    taken = (2 * n + 4) * TINY

    def carried(gone: list[jax.Array]) -> list[jax.Array]:
        """What was lost, one step on, and its sum."""
        read.put(gone_out, 0, gone)
        return [*read.forward(gone, gone_out, 0), sum_of(gone)]

    def step(r: Any, at: Any, moved: Any, row: Any, risen: Any, bounds: Any) -> Any:
        """One row: the new message is stored; its prediction, the next row, and what was lost, one step on, go on."""
        least, excess = bounds
        following = read.row(r + 1)  # asked for long before it is needed
        _, _, b, peak = read.seen(row)
        joint = [moved[k] * b[k] for k in range(n)]
        c = sum_of(joint)
        least = jnp.minimum(least, c)
        c = jnp.maximum(c, TINY)
        scale = 1.0 / c
        message = [each * scale for each in joint]
        read.put(alpha, at, message)
        if risen:
            lost = lambda: carried([((risen[k] + taken) * b[k] + taken) * scale for k in range(n)])  # noqa: E731
            *risen, size = read.if_watched(lost, n + 1)
            excess = jnp.maximum(excess, size)
        return (read.forward(message, alpha, at), following, risen, (least, excess)), c, peak

    def opened(r: Any, moved: Sequence[jax.Array], values: Sequence[Any]) -> list[jax.Array]:
        here = (read.begin == r) & read.opens
        return [jnp.where(here, values[k], each) for k, each in enumerate(moved)]

    in_margin = 0 if plan.joined else n  # where chunks are compared, what is unknown comes in at their beginning

    def margin(r: Any, carry: Any) -> Any:
        moved, row, risen, bounds = carry
        return step(r, 0, opened(r, moved, initial), row, opened(r, risen, [zero] * n), bounds)[0]

    def core(r: Any, carry: Any) -> Any:
        state, (total, over) = carry
        state, c, peak = step(plan.left + r, (r + 1) * n, *state)
        # Summed with compensation: the rounding of a plain sum, chunk by chunk, adds up over many of them.
        term = jnp.where(r < read.core, jnp.log(c) + peak * math.log(2.0), 0.0) - over
        return state, (total + term, (total + term - total) - term)

    read.put(alpha, 0, message)
    read.put(gone_out, 0, [zero] * n)
    begin = (read.forward(message, alpha, 0), read.row(0), [zero] * in_margin, (zero + 1.0, zero))
    moved, row, risen, bounds = jax.lax.fori_loop(0, plan.left, margin, begin)
    if plan.joined:
        risen = [jnp.where(read.watched & (NEGLIGIBLE * each < UNKNOWN), UNKNOWN, zero) for each in moved]
    moved, risen = opened(plan.left, moved, initial), opened(plan.left, risen, [zero] * n)
    state, (total, _) = jax.lax.fori_loop(0, plan.core, core, ((moved, row, risen, bounds), (zero, zero)))
    moved, _, risen, (least, excess) = state
    log_likelihood[read.own] = total
    sound = excess < NEGLIGIBLE
    for k in range(n if plan.joined else 0):
        sound &= risen[k] <= jnp.maximum(NEGLIGIBLE * moved[k], 0.9 * UNKNOWN)
    least_out[read.own] = least
    lost_out[read.own] = jnp.where(sound, 0, 1).astype(jnp.int32)  # also where it is not a number


def _backward(plan: Plan, count: int, rows: Any, *references: Any) -> None:
    lanes, parameters, (alpha, gone) = Lanes(*references[:5]), Parameters(*references[5:10]), references[10:12]
    first_out, result, sums_out, edges, least_out, lost_out, gamma_out = references[12:]
    read = Reader(plan, rows, lanes, parameters)
    n, size = plan.states, plan.config.lanes
    fused, total = plan.config.fused_counts, plan.left + plan.core + plan.right
    zero = read.zero
    lane = read.lane + jnp.arange(size, dtype=jnp.int32)
    kept = 0 if read.table else n * plan.sums  # a table's sums are added where they lie, each lane in its own column
    if read.table:

        def clear(i: Any, _: Any) -> Any:
            sums_out[pl.ds(i * count + read.lane, size)] = zero
            return _

        jax.lax.fori_loop(0, n * plan.sums, clear, 0)

    def keep(weighted: Sequence[jax.Array], at: Any) -> None:
        if not plan.config.held:
            read.put(result, at, weighted)

    def margin(i: Any, carry: Any) -> Any:
        r = total - 1 - i
        beta, row, least, risen = carry
        following = read.row(r - 1)
        _, _, b, _ = read.seen(row)
        weighted = [beta[k] * b[k] for k in range(n)]
        keep(weighted, 0)  # where the core's first row will go, in the end
        beta = read.back(weighted, result, 0)
        top = reduce(jnp.maximum, beta)
        scale = 1.0 / jnp.maximum(top, TINY)

        def lost() -> list[jax.Array]:
            weighted = [risen[k] * b[k] for k in range(n)]
            keep(weighted, 0)
            return [(each + (2 * n + 4) * TINY) * scale for each in read.back(weighted, result, 0)]

        risen = read.if_watched(lost, n)
        return [each * scale for each in beta], following, jnp.minimum(least, top), risen

    def core(i: Any, carry: Any) -> Any:
        r = plan.core - 1 - i
        beta, a, row, least, sums, counts, _ = carry
        before = [alpha[r * n + k, read.own] for k in range(n)]
        following = read.row(plan.left + r - 1)
        filled, present, b, _ = read.seen(row)
        mine = r < read.core
        gamma = [a[k] * beta[k] for k in range(n)]
        weighted = [b[k] * beta[k] for k in range(n)]
        keep(weighted, r * n)
        beta = read.back(weighted, result, r * n)
        c = sum_of(before[k] * beta[k] for k in range(n))
        opening = (r == 0) & read.opens & (read.begin == plan.left)
        # The first row of a sequence has no message before it: what is found there is neither used nor to be trusted.
        least = jnp.minimum(least, jnp.where(opening, 1.0, c))
        scale = 1.0 / jnp.maximum(c, TINY)
        beta = [each * scale for each in beta]
        counted = jnp.where(mine & ~opening, scale, 0.0)
        weighted = [each * counted for each in weighted]
        if fused:
            counts = [counts[i * n + j] + before[i] * weighted[j] for i in range(n) for j in range(n)]
        else:
            read.put(result, r * n, weighted)
        if plan.gamma:
            # Rows of the margins go to rows behind the last, one for each lane.
            nowhere = plan.gamma + lane - read.lane
            at = jnp.where(mine, read.origin // plan.row_stride + plan.left + r, nowhere) * n
            for k in range(n):
                triton.store(gamma_out.at[at + k], gamma[k])
        weight = jnp.where(mine & present, 1.0, 0.0)
        observed = [each * weight for each in gamma]
        if read.table:
            code = read.code(filled[0])[0]
            for k in range(n):
                place = sums_out.at[(code + k * plan.sums) * count + lane]
                triton.store(place, triton.load(place) + observed[k])
        elif kept:
            sums = read.add_sums(filled, observed, sums)
        return beta, before, following, least, sums, counts, gamma

    end = ([zero + 1.0] * n, read.row(total - 1), zero + 1.0, [zero] * n)
    beta, row, least, risen = jax.lax.fori_loop(0, plan.right, margin, end)
    leaving = [alpha[plan.core * n + k, read.own] for k in range(n)]
    agreed = sum_of(leaving[k] * beta[k] for k in range(n))
    least = jnp.minimum(least, agreed)
    scale = 1.0 / jnp.maximum(agreed, TINY)
    disputed = zero
    for k, each in enumerate(risen):
        disputed += gone[k, read.own] * (beta[k] + each) + leaving[k] * each
    read.put(edges, 0, beta)
    nothing = ([zero] * kept, [zero] * (n * n if fused else 0), [zero] * n)
    carry = ([each * scale for each in beta], leaving, row, least, *nothing)
    beta, _, _, least, sums, counts, gamma = jax.lax.fori_loop(0, plan.core, core, carry)
    opening = read.opens & (read.begin == plan.left) & (read.core > 0)
    read.put(edges, n, beta)
    read.put(first_out, 0, [jnp.where(opening, each, 0.0) for each in gamma])
    read.put(result, 0, counts)
    for at, each in enumerate(sums):
        sums_out[pl.ds(at * count + read.lane, size)] = each
    least_out[read.own] = least
    lost_out[read.own] = jnp.where(disputed * scale < NEGLIGIBLE, 0, 1).astype(jnp.int32)


def count_transitions(plan: Plan, count: int, alpha: jax.Array, weighted: jax.Array) -> jax.Array:
    """`sum_t alpha[t - 1, i] weighted[t, j]` of every window, `(K, K, W)`, a tile of states at a time: a pass of
    its own, for models whose counts do not fit into registers beside the rest."""
    n = plan.states
    side = min(plan.config.tile, n)
    tiles = -(-n // side)
    splits = min(plan.config.splits, plan.core)
    shape = _floats(splits * tiles * tiles * side * side, count)
    grid = (count // plan.config.lanes, splits, tiles * tiles)
    found = _call(plan, partial(_count_tile, plan, side, tiles, splits), shape, grid)(alpha, weighted)
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
