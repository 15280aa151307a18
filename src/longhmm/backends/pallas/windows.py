"""Statistics of windows by the fused GPU kernel, in the same terms as the C++ kernel; see `kernel`.

Windows that underflow may have harmed are done again by the reference, one at a time: a loop that usually has nothing
to do, which stays true when many chains share the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from longhmm.backends import reference
from longhmm.backends.pallas import devices
from longhmm.backends.pallas.kernel import run_windows
from longhmm.backends.pallas.plan import Config, Form, Found, Lanes, Parameters, Plan
from longhmm.backends.pallas.rows import scaled_packs
from longhmm.backends.protocol import PRECOMPUTED, Boundary, ChunkStatistics, Lowered, Wanted, weighted_sum
from longhmm.data.layout import Layout
from longhmm.inference.markov import stationary

name = "pallas"
many_points = True
MOST_STATES = 32
HELD_STATES = 8  # up to here the transition matrix and the counts of transitions stay in registers


def usable() -> bool:
    """Whether compiled JAX programs run on a GPU that the kernel was written for."""
    return jax.default_backend() == "gpu" and "nvidia" in jax.devices()[0].device_kind.lower()


def status() -> str:
    """One line on the GPU kernel, for people."""
    if usable():
        return f"runs on {jax.devices()[0].device_kind}, up to {MOST_STATES} states"
    return "not used: JAX sees no NVIDIA GPU"


def interpreted() -> bool:
    """Whether the kernel must do without a GPU: slow, for tests."""
    return jax.default_backend() != "gpu"


def serves(n_states: int) -> bool:
    """Whether the kernel can run models with so many states."""
    return n_states <= MOST_STATES


def config_for(n_states: int) -> Config:
    """The layout that was fastest for so many states."""
    return Config(held=n_states <= HELD_STATES, fused_counts=n_states <= HELD_STATES)


def supports(kind: int, n_states: int, time_varying: bool, precision: Any) -> bool:
    """Whether programs run on a GPU, in single precision, with few states and one matrix for all rows."""
    return usable() and precision == jnp.float32 and not time_varying and kind <= PRECOMPUTED and serves(n_states)


def statistics(
    lowered: Lowered,
    transition: Any,
    initial: Any,
    layout: Layout,
    boundary: Boundary,
    weights: Any,
    *,
    start: Any,
    wanted: Wanted,
) -> ChunkStatistics:
    """Marginals of the cores of windows, in single precision; sums over windows are taken in double."""
    if boundary.forward is not None or wanted.forward_only or wanted.messages:
        how = (lowered, transition, initial, layout, boundary, weights)
        return reference.statistics(*how, start=start, wanted=wanted)
    message = jax.lax.stop_gradient(stationary(transition)) if start is None else start
    natural = jnp.zeros((transition.shape[-1], 1)) if lowered.natural is None else lowered.natural
    form = Form(lowered.kind, lowered.width, 0 if lowered.natural is None else natural.shape[-1], lowered.sums)
    by = None if wanted.per_chunk else (jnp.ones(layout.size) if weights is None else weights)
    found = window_sums(form, lowered.rows, layout, (transition, initial, message), natural, by, gamma=wanted.gamma)
    logs, first, counts, centred, sums, posteriors = (each.astype(transition.dtype) for each in found)
    none = jnp.asarray(-1, jnp.int32)
    return ChunkStatistics(logs, first, counts, centred, sums, posteriors, None, None, none)


def window_sums(
    form: Form,
    rows: jax.Array,
    layout: Layout,
    parameters: tuple[jax.Array, jax.Array, jax.Array],
    packs: jax.Array,
    weights: jax.Array | None,
    *,
    gamma: int = 0,
    config: Config | None = None,
    interpret: bool | None = None,
) -> Sequence[jax.Array]:
    """Log likelihood, first states, transitions, their excess, sums, and posteriors of core rows (others are 0).

    All in float32; sums over windows, and the excess, in which large counts cancel, are taken in float64.

    Args:
        rows: `(n, width)`.
        layout: W windows in them.
        parameters: transition matrix, message of first states, and message of the state before a window.
        packs: `(K, pack)`, natural parameters.
        weights: `(W,)`, with which windows are summed up; None for the results of each window (leading axis W).
        gamma: number of rows whose posteriors are asked for, or 0.
        config: the layout on the device; the fastest known where None.
        interpret: run without a GPU, slowly; where None, if there is none.
    """
    interpret = interpreted() if interpret is None else interpret
    with jax.enable_x64(False):
        parameters = tuple(each.astype(jnp.float32) for each in parameters)  # type: ignore[assignment]
        packs = packs.astype(jnp.float32)
        n = parameters[0].shape[-1]
        config = config_for(n) if config is None else config
        rows, spans = rows.astype(jnp.float32), layout.spans
        plan = Plan(form, n, *spans, form.width, 1, gamma, config, interpret)
        count = layout.size
        shared = gamma == 0 and devices.shares_pay(count)
        spare = -count % (config.lanes * (devices.mesh().size if shared else 1))
        begin, left, core, right, opens = (
            jnp.pad(jnp.asarray(each).astype(jnp.int32), (0, spare))
            for each in (layout.begin, layout.left, layout.core, layout.right, layout.opens)
        )  # a lane without a window has no rows
        lanes = Lanes((begin - spans[0]) * form.width, spans[0] - left, spans[0] + core + right, core, opens)
        run = _shared(plan) if shared else partial(run_windows, plan)
        found = run(rows.reshape(-1), lanes, flat_parameters(form, parameters, packs))
        results = _by_window(found, parameters[0], count)
        results = (*results, _only_cores(found.gamma, begin[:count], core[:count]))
        lost = found.lost[:count]
        results = _redo_lost(form, rows, layout, parameters, packs, lost, results)
    *parts, posteriors = results
    if weights is not None:
        parts = [weighted_sum(weights, each) for each in parts]
    logs, first, counts, sums = parts
    wide = (logs, first, counts, _excess(counts, parameters[0]), sums)
    return (*(each.astype(jnp.float32) for each in wide), posteriors)


def _excess(counts: jax.Array, transition: jax.Array) -> jax.Array:
    """`n_ij - A_ij n_i.` in float64, with rows of `A` that sum to one to its precision."""
    with jax.enable_x64(True):
        wide, made = transition.astype(jnp.float64), counts.astype(jnp.float64)
        wide = wide / jnp.sum(wide, axis=-1, keepdims=True)
        return made - wide * jnp.sum(made, axis=-1, keepdims=True)


def flat_parameters(form: Form, parameters: tuple[jax.Array, jax.Array, jax.Array], packs: jax.Array) -> Parameters:
    """Parameters as the kernel reads them."""
    transition, initial, start = parameters
    flat = scaled_packs(form, packs).reshape(-1) if form.pack else jnp.zeros(1, jnp.float32)
    return Parameters(transition.reshape(-1), initial, start, flat)


def _shared(plan: Plan) -> Callable[[jax.Array, Lanes, Parameters], Found]:
    """The kernel with every device at its share of the windows; all of them have all the rows."""
    given = (PartitionSpec(), devices.along(0), PartitionSpec())
    run, results = partial(run_windows, plan), devices.found_by_window()
    return jax.shard_map(run, mesh=devices.mesh(), in_specs=given, out_specs=results, check_vma=False)


def _by_window(found: Found, transition: jax.Array, count: int) -> tuple[jax.Array, ...]:
    return (
        found.log_likelihood[:count],
        found.first[:, :count].T,
        jnp.moveaxis(found.transitions[..., :count], -1, 0) * transition,
        jnp.moveaxis(found.sums[..., :count], -1, 0),
    )


def _only_cores(gamma: jax.Array, begin: jax.Array, core: jax.Array) -> jax.Array:
    """Posteriors with 0 in rows that no core owns, where the kernel wrote nothing."""
    edges = jnp.zeros(gamma.shape[0] + 1, jnp.int32).at[begin].add(1).at[begin + core].add(-1)
    return jnp.where(jnp.cumsum(edges)[:-1, None] > 0, gamma, 0.0)


def _redo_lost(
    form: Form,
    rows: jax.Array,
    layout: Layout,
    parameters: tuple[jax.Array, jax.Array, jax.Array],
    packs: jax.Array,
    lost: jax.Array,
    results: tuple[jax.Array, ...],
) -> tuple[jax.Array, ...]:
    """Results with those of lost windows replaced by the reference's, one window after the other."""
    transition, initial, start = parameters
    lowered = Lowered(rows, packs if form.pack else None, form.kind, form.width, form.sums)
    n_rows = results[4].shape[0]

    def one(carry: tuple[jax.Array, tuple[jax.Array, ...]]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        lost, results = carry
        window = jnp.argmax(lost)
        alone = jax.tree.map(lambda each: jax.lax.dynamic_slice_in_dim(jnp.asarray(each), window, 1), layout)
        wanted = Wanted(per_chunk=True, gamma=n_rows if n_rows > 1 else 0)
        found = reference.statistics(lowered, transition, initial, alone, Boundary(), None, start=start, wanted=wanted)
        parts = (found.log_likelihood, found.first, found.transitions, found.sums)
        kept = tuple(each.at[window].set(part[0]) for each, part in zip(results[:4], parts, strict=True))
        gamma = results[4]
        if n_rows > 1:
            row = jnp.arange(n_rows)[:, None]
            mine = (row >= alone.begin) & (row < alone.begin + alone.core)
            gamma = jnp.where(mine, found.gamma, gamma)
        return lost.at[window].set(False), (*kept, gamma)

    return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), one, (lost, results))[1]


def for_windows(tree: Any, windows: int) -> Any:
    """Arrays on every device, where so many windows of a minibatch are spread over all of them."""
    return devices.everywhere(tree) if usable() and devices.shares_pay(windows) else tree
