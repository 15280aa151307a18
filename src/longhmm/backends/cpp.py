"""The C++ kernel as an operation of compiled programs. Under `jax.vmap` all chains share one call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends import native
from longhmm.backends.protocol import (
    PRECOMPUTED,
    Boundary,
    ChunkPaths,
    ChunkStatistics,
    Lowered,
    Messages,
    PathsWanted,
    Uniforms,
    Wanted,
)
from longhmm.data.layout import Layout

name = "cpp"
many_points = True
underflows = True


def supports(kind: int, n_states: int, time_varying: bool, precision: np.dtype) -> bool:
    """Whether it was built, programs run on the CPU, one matrix serves all rows, and a state fits into a byte."""
    return not time_varying and kind <= PRECOMPUTED and n_states <= native.MOST_STATES and native.usable()


def kernel_threads() -> int:
    """Threads that a call may use."""
    return native.threads()


def borrowed(rows: np.ndarray) -> np.ndarray:
    """Rows of the caller's memory, contiguous floats, by address: not copied, and of any number in one program.

    The caller keeps the memory until the results are there.
    """
    return np.array([rows.ctypes.data, rows.dtype == np.float64], np.uint64)


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
    """Marginals of the cores, in the precision of `transition`; rows keep their own."""
    native.register()
    kind, n, size = transition.dtype, transition.shape[-1], layout.size
    lead = (size,) if wanted.per_chunk else ()
    shapes: tuple[tuple[int, ...], ...] = (
        lead,
        (*lead, n),
        (*lead, n, n),
        (*lead, n, n),
        (*lead, n, lowered.sums),
        (wanted.gamma or 1, n),
        (4, size, n) if wanted.messages else (1, 1),
    )
    results = [*(jax.ShapeDtypeStruct(shape, kind) for shape in shapes), jax.ShapeDtypeStruct((), jnp.int32)]
    # One call serves many points, unless something belongs to a single one of them.
    alone = boundary.forward is not None or boundary.backward is not None
    alone = alone or (wanted.gamma > 0 and lowered.kind != PRECOMPUTED)
    run = jax.ffi.ffi_call(
        "longhmm_windows_f64" if kind == jnp.float64 else "longhmm_windows_f32",
        results,
        vmap_method="sequential" if alone else "expand_dims",
    )
    none = jnp.zeros((1, 1), kind)
    natural = none if lowered.natural is None else lowered.natural
    messages = (none if each is None else each for each in boundary)
    found = run(
        lowered.rows,
        *(
            jnp.asarray(each, jnp.int32)
            for each in (layout.begin, layout.left, layout.core, layout.right, layout.opens)
        ),
        jnp.ones(size, kind) if weights is None else weights.astype(kind),
        transition,
        *(jnp.asarray(each, kind) for each in (initial, initial if start is None else start, natural, *messages)),
        kind=np.int32(lowered.kind),
        width=np.int32(lowered.width),
        per_window=np.int32(wanted.per_chunk),
        stationary_start=np.int32(start is None),
        given_before=np.int32(boundary.forward is not None),
        given_after=np.int32(boundary.backward is not None),
        gamma_wanted=np.int32(wanted.gamma > 0),
        edges_wanted=np.int32(wanted.messages),
        forward_only=np.int32(wanted.forward_only),
        threads=np.int32(native.threads()),
    )
    logs, first, counts, centred, sums, gamma, edges, impossible = found
    ends = Messages(*edges) if wanted.messages else None
    return ChunkStatistics(logs, first, counts, centred, sums, gamma, None, ends, impossible)


def paths(
    lowered: Lowered,
    transition: Any,
    initial: Any,
    layout: Layout,
    forward: Any,
    following: Any,
    uniforms: Uniforms,
    *,
    start: Any,
    log_space: Any,
    wanted: PathsWanted,
) -> ChunkPaths:
    """Paths through the cores, under `jax.enable_x64(True)`; what was not asked for is of no use."""
    native.register()
    n, size = transition.shape[-1], layout.size
    messages, maps = (size if each else 1 for each in (wanted.messages, wanted.maps))
    results = (
        *(jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((messages, n), (messages, n), (messages,))),
        jax.ShapeDtypeStruct((maps, n + 1), jnp.uint8),
        jax.ShapeDtypeStruct((max(wanted.states, 1),), jnp.uint8),
        jax.ShapeDtypeStruct((), jnp.int64),
    )
    none = jnp.zeros((1, 1))
    numbers = (initial, initial if start is None else start, none if lowered.natural is None else lowered.natural)
    found = jax.ffi.ffi_call("longhmm_find_paths", results, vmap_method="sequential")(
        lowered.rows,
        *(jnp.asarray(each, jnp.int32) for each in (layout.begin, layout.left, layout.core, layout.opens)),
        *(jnp.asarray(each, jnp.float64) for each in (transition, *numbers, none if forward is None else forward)),
        jnp.asarray(jnp.zeros(size) if following is None else following, jnp.int32),
        jnp.asarray(uniforms.key, jnp.uint32),
        jnp.asarray(uniforms.first_row, jnp.int64),
        jnp.asarray(log_space, jnp.int32),
        kind=np.int32(lowered.kind),
        width=np.int32(lowered.width),
        drawn=np.int32(wanted.drawn),
        given_before=np.int32(forward is not None),
        messages_wanted=np.int32(wanted.messages),
        maps_wanted=np.int32(wanted.maps),
        states_wanted=np.int32(wanted.states > 0),
        threads=np.int32(native.threads()),
    )
    return ChunkPaths(*found)
