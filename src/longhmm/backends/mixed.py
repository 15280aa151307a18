"""Distribution functions weighted by predicted states, from tables, in the kernel: what mixed.h is given."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from longhmm.backends import native

TASK = 1 << 12  # rows of a task, as in mixed.h
ADDRESS, WHOLE, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class _Places(ctypes.Structure):
    """See mixed.h."""

    _fields_ = (
        *((name, REAL) for name in ("origin", "scale", "least")),
        *((name, WHOLE) for name in ("shift", "first", "count")),
        *((name, ADDRESS) for name in ("slot", "numbers")),
    )


class _Mixed(ctypes.Structure):
    """See mixed.h."""

    _fields_ = (
        *((name, WHOLE) for name in ("rows", "states", "padded", "features", "terms", "n_opens", "stride", "wide")),
        *((name, ADDRESS) for name in ("filtered", "recent", "transition", "initial")),
        *((name, ADDRESS) for name in ("opens", "values", "spread", "path")),
        *((name, kind) for name, kind in (("places", ADDRESS), ("faintest", REAL))),
        *((name, ADDRESS) for name in ("quantiles", "given", "left", "n_left", "lowest")),
    )


class Rows(NamedTuple):
    """What is asked of rows: contiguous arrays, as mixed.h names them; those that are optional may be None, and values
    are of single or double precision."""

    filtered: np.ndarray
    recent: np.ndarray
    transition: np.ndarray
    initial: np.ndarray
    opens: np.ndarray
    values: np.ndarray
    spread: np.ndarray | None
    path: np.ndarray | None


class Mixed(NamedTuple):
    """Rows `(m,)` that were observed, but of which not everything was told; the smallest value of each feature."""

    left: np.ndarray
    lowest: np.ndarray


def mix(tables: Sequence[Any], rows: Rows, faintest: float, stride: int, results: Sequence[np.ndarray]) -> Mixed | None:
    """Write normal quantiles and, with a path, those of its states to `results`, `(D, n)` each, whose rows are `stride`
    numbers apart; None where there is no kernel to do it."""
    library: Any = native.library() if native.available() else None
    if not hasattr(library, "longhmm_mixed"):
        return None
    places = (_Places * len(tables))(
        *(_Places(*each[:5], each.slot.shape[1], at(each.slot), at(each.numbers)) for each in tables)
    )
    terms, padded = tables[0].numbers.shape[1:]
    n, wide = len(rows.values), rows.values.dtype == np.float64
    sizes = (n, rows.filtered.shape[1], padded, len(tables), terms, len(rows.opens), stride, wide)
    left, n_left = np.empty(n, np.int64), np.empty(-(-n // TASK), np.int64)
    lowest = np.empty((len(n_left), len(tables)))
    outputs = *[*map(at, results), None][:2], *map(at, (left, n_left, lowest))
    asked = _Mixed(*sizes, *map(at, rows), ctypes.addressof(places), faintest, *outputs)
    library.longhmm_mixed(ctypes.byref(asked), WHOLE(native.threads()))
    some = [left[TASK * task :][: n_left[task]] for task in np.flatnonzero(n_left)]
    return Mixed(np.concatenate(some) if some else left[:0], lowest.min(axis=0))


def at(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data
