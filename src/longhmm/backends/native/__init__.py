"""The C++ kernel as a backend, compiled from the files beside this one; wheels bring it along.

Rows are read, turned into likelihoods, filtered, smoothed and summed by one function that never writes anything of the
size of the data. Under `jax.vmap` all chains share one call. `LONGHMM_NATIVE=0` switches it off.
"""

import ctypes
import os
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends import protocol
from longhmm.backends.native import by_row
from longhmm.backends.programs import platform
from longhmm.data.layout import Layout
from longhmm.model.statistics import FUNCTIONS, Terms

name = "cpp"
in_place = True
many_points = True
underflows = True
MOST_STATES = 255  # of a model whose paths it can find: a state is a byte, and one value means none

OPERATIONS = ("longhmm_find_paths", *(f"longhmm_{of}_f{bits}" for of in ("windows", "varying") for bits in (32, 64)))


@cache
def _load() -> ctypes.CDLL | str:
    """The library, or why there is none. It has one name on all systems: it is loaded by its path."""
    if os.environ.get("LONGHMM_NATIVE", "1") == "0":
        return "switched off by LONGHMM_NATIVE=0"
    place = Path(__file__).with_name("library.so")
    if not place.exists():
        return "not built; install a wheel that has it, or again where a C++ compiler is present"
    try:
        found = ctypes.CDLL(str(place))
    except OSError as error:
        return f"cannot be loaded ({error})"
    known = all(hasattr(found, each) for each in (*OPERATIONS, "longhmm_mix", "longhmm_last_kind", "longhmm_terms"))
    if not known or (found.longhmm_last_kind(), found.longhmm_terms()) != (protocol.FRAMES, len(FUNCTIONS)):
        return "of another version of longhmm; build it again"
    found.longhmm_instruction_set.restype = ctypes.c_char_p
    return found


@cache
def library() -> ctypes.CDLL | None:
    """The loaded library, or None where there is none, which is said once."""
    found = _load()
    if isinstance(found, str) and "switched off" not in found:
        warnings.warn(f"Many times slower than it could be: {status()}", stacklevel=2)
    return None if isinstance(found, str) else found


def available() -> bool:
    """Whether the fused kernel can be used."""
    return library() is not None


def usable() -> bool:
    """Whether compiled JAX programs may call the kernel: it is built, and they run on the CPU."""
    return available() and platform() == "cpu"


def threads() -> int:
    """Threads that a call may use: the processors this process may run on, or `LONGHMM_THREADS`."""
    given = os.environ.get("LONGHMM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def status() -> str:
    """One line on the fused kernel, for people."""
    found = _load()
    if isinstance(found, str):
        return f"fused kernel: {found} (pure JAX runs instead)"
    return f"fused kernel: {found.longhmm_instruction_set().decode()}, {threads()} threads"


def supports(kind: int, n_states: int, time_varying: bool, precision: np.dtype) -> bool:
    """Whether it was built, programs run on the CPU, and a state fits into a byte."""
    return n_states <= MOST_STATES and usable()


def borrowed(rows: np.ndarray, terms: Terms = ()) -> np.ndarray:
    """Rows of the caller's memory, contiguous floats, by address: not copied, and of any number in one program. Their
    numbers are these, or the `terms` of them. The caller keeps the memory until the results are there."""
    codes = [column * len(FUNCTIONS) + list(FUNCTIONS).index(name) for name, column in terms]
    return np.array([rows.ctypes.data, rows.dtype == np.float64, rows.shape[1], *codes], np.uint64)


def statistics(
    potentials: protocol.Potentials, layout: Layout, boundary: protocol.Boundary, weights: Any, wanted: protocol.Wanted
) -> protocol.ChunkStatistics:
    """Marginals of the cores; rows keep their own precision."""
    if by_row.by_row(potentials):
        return by_row.statistics(_call, potentials, layout, boundary, weights, wanted)
    transition = potentials.transition
    kind, n, size = transition.dtype, transition.shape[-1], layout.size
    lead = (size,) if wanted.per_chunk else ()
    shapes: tuple[tuple[int, ...], ...] = (
        lead,
        (*lead, n),
        (*lead, n, n),
        (*lead, n, n),
        (*lead, n, potentials.sums),
        (wanted.gamma or 1, n),
        (4, size, n) if wanted.messages else (1, 1),
    )
    results = [*(jax.ShapeDtypeStruct(shape, kind) for shape in shapes), jax.ShapeDtypeStruct((), jnp.int32)]
    # One call serves many points, unless something belongs to a single one of them.
    alone = boundary.forward is not None or boundary.backward is not None
    alone = alone or (wanted.gamma > 0 and potentials.kind != protocol.PRECOMPUTED)
    start = potentials.initial if boundary.start is None else boundary.start
    given = (potentials.initial, start, potentials.natural, boundary.forward, boundary.backward)
    operation = "longhmm_windows_f64" if kind == jnp.float64 else "longhmm_windows_f32"
    *sums, gamma, edges, impossible = _call(operation, results, "sequential" if alone else "expand_dims")(
        potentials.rows,
        *_integers(layout.begin, layout.left, layout.core, layout.right, layout.opens),
        jnp.ones(size, kind) if weights is None else weights.astype(kind),
        transition,
        *_numbers(kind, *given),
        jnp.zeros(3, jnp.int32) if potentials.mixed is None else potentials.mixed,
        **by_row.flags(kind=potentials.kind, width=potentials.width, stationary_start=boundary.start is None),
        **by_row.asked(boundary, wanted),
    )
    messages = protocol.Messages(*edges) if wanted.messages else None
    return protocol.ChunkStatistics._make((*sums, gamma, None, messages, impossible))


def paths(
    potentials: protocol.Potentials, layout: Layout, given: protocol.PathsGiven, wanted: protocol.PathsWanted
) -> protocol.ChunkPaths:
    """Paths through the cores."""
    n, size = potentials.initial.shape[-1], layout.size
    messages, maps = (size if each else 1 for each in (wanted.messages, wanted.maps))
    results = (
        *(jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((messages, n), (messages, n), (messages,))),
        jax.ShapeDtypeStruct((maps, n + 1), jnp.uint8),
        jax.ShapeDtypeStruct((max(wanted.states, 1),), jnp.uint8),
        jax.ShapeDtypeStruct((), jnp.int64),
    )
    start = potentials.initial if given.start is None else given.start
    moves, attributes = by_row.moves_of(potentials)
    found = _call("longhmm_find_paths", results, "sequential")(
        potentials.rows,
        *_integers(layout.begin, layout.left, layout.core, layout.right, layout.opens),
        *moves.of(jnp.float64),
        *_numbers(jnp.float64, potentials.initial, start, potentials.natural, given.forward),
        *_integers(jnp.zeros(size) if given.following is None else given.following),
        jnp.asarray(given.key, jnp.uint32),
        jnp.asarray(given.first_row, jnp.int64),
        *_integers(given.log_space),
        **by_row.flags(drawn=wanted.drawn, given_before=given.forward is not None, messages_wanted=wanted.messages),
        **by_row.flags(maps_wanted=wanted.maps, states_wanted=wanted.states > 0),
        **attributes,
    )
    return protocol.ChunkPaths(*found[:5])


def _call(operation: str, results: Any, vmap_method: str) -> Any:
    _register()
    return partial(jax.ffi.ffi_call(operation, results, vmap_method=vmap_method), threads=np.int32(threads()))


def _integers(*given: Any) -> list[jax.Array]:
    return [jnp.asarray(each, jnp.int32) for each in given]


def _numbers(kind: Any, *given: Any) -> list[jax.Array]:
    """What is not given has a place all the same."""
    return [jnp.zeros((1, 1), kind) if each is None else jnp.asarray(each, kind) for each in given]


@cache
def _register() -> None:
    for operation in OPERATIONS:
        jax.ffi.register_ffi_target(operation, jax.ffi.pycapsule(getattr(library(), operation)), platform="cpu")
