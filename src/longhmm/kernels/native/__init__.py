"""The fused kernel, compiled from the C++ files beside this one when the package was installed.

Windows go in and expected statistics come out: rows are read, turned into likelihoods, filtered, smoothed and summed
by one function that never writes anything of the size of the data. `LONGHMM_NATIVE=0` switches it off.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

GAUSSIAN, LINEAR, TABLE, GIVEN = range(4)  # see call.h

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class Call(ctypes.Structure):
    """The arguments of one call, as in call.h."""

    _fields_ = (
        ("rows", _POINTER),
        *((name, _INT) for name in ("wide_rows", "width", "kind", "pack")),
        *((name, _POINTER) for name in ("left", "core", "right", "at_start", "begin")),
        ("windows", _LONG),
        *((name, _INT) for name in ("chains", "points", "max_left", "max_core", "max_right", "states")),
        *((name, _POINTER) for name in ("transition", "initial", "start", "packs", "before", "after", "weight")),
        ("per_window", _INT),
        *((name, _POINTER) for name in ("log_likelihood", "first", "transitions", "statistics", "gamma")),
        ("gamma_origin", _LONG),
        *((name, _POINTER) for name in ("edge_before", "edge_leaving", "edge_after", "edge_entering")),
        ("edge_stride", _LONG),
        ("forward_only", _INT),
        ("threads", _INT),
        ("impossible", _LONG),
        ("careful", _LONG),
    )


class Paths(ctypes.Structure):
    """The arguments of a call for paths of states, as in paths.h."""

    _fields_ = (
        ("call", Call),
        ("drawn", _INT),
        ("logarithms", _INT),
        ("key", ctypes.c_uint32 * 2),
        ("row_number", _LONG),
        *((name, _POINTER) for name in ("log_before", "before", "leaving", "log_likelihood")),
        *((name, _POINTER) for name in ("maps", "following", "states")),
        ("origin", _LONG),
        ("careful", _LONG),
    )


NO_STATE = 255  # see paths.h
MOST_STATES = 255  # of a model whose paths it can find

_switched_off = False


@contextmanager
def switched_off() -> Iterator[None]:
    """Run without the kernel, to compare with it."""
    global _switched_off
    before, _switched_off = _switched_off, True
    try:
        yield
    finally:
        _switched_off = before


@cache
def library() -> ctypes.CDLL | None:
    """The loaded library, or None where there is none."""
    if os.environ.get("LONGHMM_NATIVE", "1") == "0":
        return None
    try:
        found = ctypes.CDLL(str(Path(__file__).with_name("library.so")))
    except OSError:
        return None
    if not hasattr(found, "longhmm_find_paths"):
        return None
    found.longhmm_instruction_set.restype = ctypes.c_char_p
    found.longhmm_call_size.restype = ctypes.c_int64
    found.longhmm_statistics.argtypes = (ctypes.POINTER(Call), ctypes.c_int32)
    found.longhmm_statistics.restype = None
    found.longhmm_paths.argtypes = (ctypes.POINTER(Paths),)
    found.longhmm_paths.restype = None
    # A library of another version must not be fed structures it does not know.
    return found if found.longhmm_call_size() == ctypes.sizeof(Paths) else None


def available() -> bool:
    """Whether the fused kernel can be used."""
    return not _switched_off and library() is not None


def usable() -> bool:
    """Whether compiled JAX programs may call the kernel: it is built, and they run on the CPU."""
    import jax

    return available() and jax.default_backend() == "cpu"


def threads() -> int:
    """Threads that a call may use: the processors this process may run on, or `LONGHMM_THREADS`."""
    given = os.environ.get("LONGHMM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def status() -> str:
    """One line on the fused kernel, for people."""
    found = library()
    if found is not None:
        return f"fused kernel: {found.longhmm_instruction_set().decode()}, {threads()} threads"
    if os.environ.get("LONGHMM_NATIVE", "1") == "0":
        return "fused kernel: switched off by LONGHMM_NATIVE=0; pure JAX runs instead"
    return "fused kernel: not built; install again where a C++ compiler is present (pure JAX runs instead)"


def run(*, wide: bool = True, **arguments: Any) -> Call:
    """Carry out a call. Arrays are given as NumPy arrays, which must be contiguous and of the right type."""
    found = library()
    assert found is not None
    call = Call(**_pointers(arguments))
    found.longhmm_statistics(ctypes.byref(call), int(wide))
    return call


def find_paths(call: dict[str, Any], key: np.ndarray, **arguments: Any) -> Paths:
    """Carry out a call for paths; `call` holds what both kinds of calls have in common, `key` two words."""
    found = library()
    assert found is not None
    words = (ctypes.c_uint32 * 2)(*(int(word) for word in key))
    paths = Paths(call=Call(**_pointers(call)), key=words, **_pointers(arguments))
    found.longhmm_paths(ctypes.byref(paths))
    return paths


def _pointers(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.ctypes.data if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
        if value is not None
    }


@cache
def register() -> bool:
    """Make the kernel known to JAX as `longhmm_windows_f32`, `_f64` and `longhmm_find_paths`; False where there is none."""
    found = library()
    if found is None:
        return False
    import jax

    for name in ("longhmm_windows_f32", "longhmm_windows_f64", "longhmm_find_paths"):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(found, name)), platform="cpu")
    return True
