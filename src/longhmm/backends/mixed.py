"""Distribution functions weighted by predicted states, from tables, in the kernel: what mixed.h is given."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from longhmm.backends import native

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
        *((name, WHOLE) for name in ("rows", "states", "padded", "features", "terms", "n_opens", "stride")),
        *((name, ADDRESS) for name in ("before", "transition", "initial", "opens", "values", "spread", "path")),
        *((name, kind) for name, kind in (("places", ADDRESS), ("faintest", REAL))),
        *((name, ADDRESS) for name in ("below", "quantiles", "given")),
    )


class Rows(NamedTuple):
    """What is asked of rows: contiguous arrays, as mixed.h names them; those that are optional may be None."""

    before: np.ndarray
    transition: np.ndarray
    initial: np.ndarray
    opens: np.ndarray
    values: np.ndarray
    spread: np.ndarray | None
    path: np.ndarray | None


def mix(tables: Sequence[Any], rows: Rows, faintest: float, stride: int, results: Sequence[np.ndarray]) -> bool:
    """Write probabilities, their quantiles and, with a path, those of its states to `results`, `(D, n)` each, whose
    rows are `stride` numbers apart; False where there is no kernel to do it."""
    library: Any = native.library() if native.available() else None
    if not hasattr(library, "longhmm_mixed"):
        return False

    def at(array: np.ndarray | None) -> int | None:
        return None if array is None else array.ctypes.data

    places = (_Places * len(tables))(
        *(_Places(*each[:5], each.slot.shape[1], at(each.slot), at(each.numbers)) for each in tables)
    )
    terms, padded = tables[0].numbers.shape[1:]
    sizes = (len(rows.values), rows.before.shape[1], padded, len(tables), terms, len(rows.opens), stride)
    outputs = [*map(at, results), None][:3]
    asked = _Mixed(*sizes, *map(at, rows), ctypes.addressof(places), faintest, *outputs)
    library.longhmm_mixed(ctypes.byref(asked), WHOLE(native.threads()))
    return True
