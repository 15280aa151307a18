"""The C++ kernel as an operation of compiled JAX programs. Under `jax.vmap` all chains share one call."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.kernels import native
from longhmm.kernels.forms import Form


class Placed(NamedTuple):
    """Windows that have not been copied: rows of numbers, and where each window lies in them.

    Attributes:
        rows: `(n, width)`, NaN where missing (see `forms.numbers`).
        begin: `(W,)`, row of the first core time.
        left, core, right: `(W,)`, times before the core, in it, and behind it.
        at_start: `(W,)`, 1 where the window begins its sequence.
    """

    rows: Any
    begin: Any
    left: Any
    core: Any
    right: Any
    at_start: Any


class Laws(NamedTuple):
    """What the kernel knows of a model; `start` None: windows begin from the stationary law of `transition`."""

    transition: jax.Array
    initial: jax.Array
    start: jax.Array | None
    packs: jax.Array


class Found(NamedTuple):
    """What the kernel found, summed or with a leading axis W.

    Attributes:
        log_likelihood: of the cores, without `log h(y)`; minus infinity where a row is impossible.
        first, transitions: expected first states and transitions.
        excess: `n_ij - A_ij n_i.`, precise also where counts are large and cancel.
        sums: `(..., K, sums)`, what the emission's form asks for.
        gamma: `(rows, K)`, posteriors of core rows, where log likelihoods were handed over.
        edges: `(4, W, K)`, messages before, leaving, behind and entering each core, up to a factor.
    """

    log_likelihood: jax.Array
    first: jax.Array
    transitions: jax.Array
    excess: jax.Array
    sums: jax.Array
    gamma: jax.Array
    edges: jax.Array


def native_windows(
    form: Form,
    placed: Placed,
    laws: Laws,
    weights: jax.Array | None = None,
    *,
    per_window: bool = False,
    edges: bool = False,
) -> Found:
    """Statistics of the cores of all windows, in the precision of `laws.transition`; rows keep their own.

    They are summed, each times its weight `(W,)` (1 where there are none), or those of every window where `per_window`.
    """
    native.register()
    kind, n, count = laws.transition.dtype, laws.transition.shape[-1], placed.begin.shape[-1]
    lead = (count,) if per_window else ()
    unasked = (1, 1)
    shapes: tuple[tuple[int, ...], ...] = (
        lead,
        (*lead, n),
        (*lead, n, n),
        (*lead, n, n),
        (*lead, n, form.sums),
        placed.rows.shape[-2:] if form.kind == native.GIVEN else unasked,
        (4, count, n) if edges else unasked,
    )
    target = "longhmm_windows_f64" if kind == jnp.float64 else "longhmm_windows_f32"
    run = jax.ffi.ffi_call(target, [jax.ShapeDtypeStruct(shape, kind) for shape in shapes], vmap_method="expand_dims")
    found = run(
        *placed,
        jnp.ones(count, kind) if weights is None else weights.astype(kind),
        laws.transition,
        *(each.astype(kind) for each in (laws.initial, laws.initial if laws.start is None else laws.start, laws.packs)),
        kind=np.int32(form.kind),
        per_window=np.int32(per_window),
        stationary_start=np.int32(laws.start is None),
        edges_wanted=np.int32(edges),
        threads=np.int32(native.threads()),
    )
    return Found(*found)
