"""Statistics of windows by the fused GPU kernel, in the same terms as the C++ kernel; see `kernel`.

Windows that underflow may have harmed are done again by the reference, one at a time: a loop that usually has nothing
to do, which stays true when many chains share the call. Many windows are spread over all devices of this host: the mesh
is their row, and each runs an equal share.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from longhmm.backends import reference
from longhmm.backends.pallas.kernel import run_windows
from longhmm.backends.pallas.plan import Config, Found, Lanes, Plan
from longhmm.backends.pallas.rows import flat_parameters
from longhmm.backends.programs import platform
from longhmm.backends.protocol import PRECOMPUTED, Boundary, ChunkStatistics, Potentials, Wanted
from longhmm.data.layout import Layout
from longhmm.inference.markov import stationary
from longhmm.inference.scaling import weighted_sum

name = "pallas"
in_place = False
many_points = True
underflows = reference.underflows
paths = reference.paths  # which are found in double precision
MOST_STATES = 32
HELD_STATES = 8  # up to here the transition matrix and the counts of transitions stay in registers
AXIS = "windows"  # of the mesh
# Windows of a minibatch for each device, below which a device more saves nothing: on an H200 a step takes as long with
# 10,000 windows as with 16.
LARGE = 1 << 15


def usable() -> bool:
    """Whether compiled JAX programs run on a GPU that the kernel was written for."""
    return platform() == "gpu" and "nvidia" in jax.devices()[0].device_kind.lower()


def status() -> str:
    """One line on the GPU kernel, for people."""
    if usable():
        return f"runs on {jax.devices()[0].device_kind}, up to {MOST_STATES} states"
    return "not used: JAX sees no NVIDIA GPU"


def config_for(n_states: int) -> Config:
    """The layout that was fastest for so many states."""
    return Config(held=n_states <= HELD_STATES, fused_counts=n_states <= HELD_STATES)


def supports(kind: int, n_states: int, time_varying: bool, precision: Any) -> bool:
    """Whether programs run on a GPU, in single precision, with few states and one matrix for all rows."""
    served = not time_varying and kind <= PRECOMPUTED and n_states <= MOST_STATES
    return usable() and precision == jnp.float32 and served


def statistics(
    potentials: Potentials, layout: Layout, boundary: Boundary, weights: Any, wanted: Wanted
) -> ChunkStatistics:
    """Marginals of the cores of windows, in single precision; sums over windows, and centred counts, in which large
    ones cancel, are taken in double precision."""
    if boundary.forward is not None or wanted.forward_only or wanted.messages:
        return reference.statistics(potentials, layout, boundary, weights, wanted)
    dtype, n, count = potentials.transition.dtype, potentials.initial.shape[-1], layout.size
    start = jax.lax.stop_gradient(stationary(potentials.transition)) if boundary.start is None else boundary.start
    config = config_for(n)
    with jax.enable_x64(False):
        potentials, start = jax.tree.map(lambda each: each.astype(jnp.float32), (potentials, start))
        natural, width, (lead, *_) = potentials.natural, potentials.width, layout.spans
        form = (potentials.kind, width, 0 if natural is None else natural.shape[-1], potentials.sums)
        plan = Plan(*form, n, *layout.spans, width, 1, wanted.gamma, config)
        shared = wanted.gamma == 0 and shares_pay(count)
        spare = -count % (config.lanes * (mesh().size if shared else 1))
        begin, left, core, right, opens = (
            jnp.pad(jnp.asarray(each).astype(jnp.int32), (0, spare))
            for each in (layout.begin, layout.left, layout.core, layout.right, layout.opens)
        )  # a lane without a window has no rows
        lanes = Lanes((begin - lead) * width, lead - left, lead + core + right, core, opens)
        run: Callable[..., Found] = partial(run_windows, plan)
        run = on_each(run, PartitionSpec()) if shared else run
        transition = potentials.transition
        parameters = flat_parameters(plan, transition, potentials.initial, start, natural)
        found = run(potentials.rows, lanes, parameters)
        results = (
            found.log_likelihood[:count],
            found.first[:, :count].T,
            jnp.moveaxis(found.transitions[..., :count], -1, 0) * transition,
            jnp.moveaxis(found.sums[..., :count], -1, 0),
            _only_cores(found.gamma, begin[:count], core[:count]),
        )
        *parts, gamma = _redo_lost(potentials, layout, start, found.lost[:count], results)
    if not wanted.per_chunk:
        by = jnp.ones(count) if weights is None else weights
        parts = [weighted_sum(by, each) for each in parts]
    logs, first, counts, sums = parts
    wide = (logs, first, counts, _excess(counts, transition), sums, gamma)
    narrow = (each.astype(jnp.float32).astype(dtype) for each in wide)
    return ChunkStatistics._make((*narrow, None, None, jnp.asarray(-1, jnp.int32)))


def _excess(counts: jax.Array, transition: jax.Array) -> jax.Array:
    """`n_ij - A_ij n_i.` in float64, with rows of `A` that sum to one to its precision."""
    with jax.enable_x64(True):
        wide, made = transition.astype(jnp.float64), counts.astype(jnp.float64)
        wide = wide / jnp.sum(wide, axis=-1, keepdims=True)
        return made - wide * jnp.sum(made, axis=-1, keepdims=True)


def _only_cores(gamma: jax.Array, begin: jax.Array, core: jax.Array) -> jax.Array:
    """Posteriors with 0 in rows that no core owns, where the kernel wrote nothing."""
    edges = jnp.zeros(gamma.shape[0] + 1, jnp.int32).at[begin].add(1).at[begin + core].add(-1)
    return jnp.where(jnp.cumsum(edges)[:-1, None] > 0, gamma, 0.0)


def _redo_lost(
    potentials: Potentials, layout: Layout, start: jax.Array, lost: jax.Array, results: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """Results with those of lost windows replaced by the reference's, one window after the other."""
    n_rows = results[4].shape[0]

    def one(carry: tuple[jax.Array, tuple[jax.Array, ...]]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        lost, results = carry
        window = jnp.argmax(lost)
        alone = jax.tree.map(lambda each: jax.lax.dynamic_slice_in_dim(jnp.asarray(each), window, 1), layout)
        wanted = Wanted(per_chunk=True, gamma=n_rows if n_rows > 1 else 0)
        found = reference.statistics(potentials, alone, Boundary(start=start), None, wanted)
        parts = (found.log_likelihood, found.first, found.transitions, found.sums)
        kept = tuple(each.at[window].set(part[0]) for each, part in zip(results[:4], parts, strict=True))
        gamma = results[4]
        if n_rows > 1:
            row = jnp.arange(n_rows)[:, None]
            mine = (row >= alone.begin) & (row < alone.begin + alone.core)
            gamma = jnp.where(mine, found.gamma, gamma)
        return lost.at[window].set(False), (*kept, gamma)

    return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), one, (lost, results))[1]


@cache
def mesh() -> Mesh:
    """All devices of this host on which compiled programs run."""
    return Mesh(np.array(jax.local_devices()), (AXIS,))


def along(axis: int = 0) -> PartitionSpec:
    """Spread along one axis."""
    return PartitionSpec(*[None] * axis, AXIS)


def spread(array: Any, axis: int = 0) -> jax.Array:
    """An array in equal shares along one axis, which must divide."""
    return jax.device_put(array, NamedSharding(mesh(), along(axis)))


def on_each(run: Callable[..., Found], rows: PartitionSpec) -> Callable[..., Found]:
    """`run(rows, lanes, parameters)` by every device on its share of the windows; `rows`: where these lie."""
    if mesh().size == 1:
        return run
    one, two, three, everywhere = along(0), along(1), along(2), PartitionSpec()
    found = Found(one, two, three, three, three, one, everywhere)
    return jax.shard_map(run, mesh=mesh(), in_specs=(rows, one, everywhere), out_specs=found, check_vma=False)


def shares_pay(windows: int) -> bool:
    """Whether so many windows are worth spreading."""
    return mesh().size > 1 and windows >= LARGE * mesh().size


def for_windows(tree: Any, windows: int) -> Any:
    """Arrays on every device, where so many windows of a minibatch are spread over all of them: they need not move."""
    if not (usable() and shares_pay(windows)):
        return tree
    return jax.device_put(tree, NamedSharding(mesh(), PartitionSpec()))
