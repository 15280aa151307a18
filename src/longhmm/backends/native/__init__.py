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

MOST_STATES = 255  # of a model whose paths it can find: a state is a byte, and one value means none

OPERATIONS = ("longhmm_windows_f32", "longhmm_windows_f64", "longhmm_find_paths")

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
    if not all(hasattr(found, name) for name in OPERATIONS):  # a library of another version
        return None
    found.longhmm_instruction_set.restype = ctypes.c_char_p
    return found


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


@cache
def register() -> bool:
    """Make the kernel's operations known to JAX; False where there is none."""
    found = library()
    if found is None:
        return False
    import jax

    for name in OPERATIONS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(found, name)), platform="cpu")
    return True
