"""The C++ kernel as an operation of compiled programs. Under `jax.vmap` all chains share one call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.protocol import PRECOMPUTED, Boundary, ChunkStatistics, Lowered, Messages, Wanted
from longhmm.data.layout import Layout
from longhmm.kernels import native

name = "cpp"
many_points = True


def supports(kind: int, n_states: int, time_varying: bool, precision: np.dtype) -> bool:
    """Whether it was built, programs run on the CPU, and one matrix serves all rows."""
    return not time_varying and kind <= PRECOMPUTED and native.usable()


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
    unasked = (1, 1)
    shapes: tuple[tuple[int, ...], ...] = (
        lead,
        (*lead, n),
        (*lead, n, n),
        (*lead, n, n),
        (*lead, n, lowered.sums),
        (wanted.gamma, n) if wanted.gamma else unasked,
        (4, size, n) if wanted.messages else unasked,
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
        *(jnp.asarray(each, jnp.int32) for each in (layout.begin, layout.left, layout.core, layout.right, layout.opens)),
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
    *sums, gamma, edges, impossible = found
    return ChunkStatistics(*sums, gamma, None, Messages(*edges) if wanted.messages else None, impossible)
