"""Distribution functions weighted by predicted states, from tables, in the kernel: what mixed.h is given. Predictions
are those of a forward pass as it goes (`Ahead`), or follow from filtered probabilities (`mix`)."""

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
        *((name, WHOLE) for name in ("first", "first_window")),
        *((name, ADDRESS) for name in ("before", "transition", "initial", "opens", "values", "spread", "path")),
        *((name, kind) for name, kind in (("places", ADDRESS), ("faintest", REAL))),
        *((name, ADDRESS) for name in ("quantiles", "given", "left", "n_left", "lowest")),
        *((name, ADDRESS) for name in ("filtered", "lost")),
    )


class Rows(NamedTuple):
    """What is asked of rows: contiguous arrays, as mixed.h names them; those that are optional may be None, and values
    are of single or double precision. A pass knows what was before."""

    before: Any
    transition: np.ndarray
    initial: np.ndarray
    opens: np.ndarray
    values: np.ndarray
    spread: np.ndarray | None
    path: np.ndarray | None


class Mixed(NamedTuple):
    """Rows `(m,)` that were observed, but of which not everything was told, with filtered probabilities `(m, K)` of
    those before where a pass tells; the smallest value of each feature."""

    left: np.ndarray
    lowest: np.ndarray
    filtered: np.ndarray | None = None


class _Asked:
    """What mixed.h is given, with all that must live as long, and what it finds, in so many `parts` of the rows."""

    def __init__(
        self,
        tables: Sequence[Any],
        rows: Rows,
        faintest: float,
        stride: int,
        results: Sequence[np.ndarray],
        parts: int,
        filtered: np.ndarray | None = None,
    ) -> None:
        n, wide, (terms, padded) = len(rows.values), rows.values.dtype == np.float64, tables[0].numbers.shape[1:]
        self.places = (_Places * len(tables))(
            *(_Places(*each[:5], each.slot.shape[1], at(each.slot), at(each.numbers)) for each in tables)
        )
        self.left, self.n_left = np.empty(n, np.int64), np.zeros(parts, np.int64)
        self.lowest, self.filtered, self.lost = np.empty((parts, len(tables))), filtered, np.zeros(1, np.int64)
        self.given = (rows, results)
        sizes = (n, len(rows.transition), padded, len(tables), terms, len(rows.opens), stride, wide, 0, 0)
        outputs = *[*map(at, results), None][:2], *map(at, (self.left, self.n_left, self.lowest, filtered, self.lost))
        self.struct = _Mixed(*sizes, *map(at, rows), ctypes.addressof(self.places), faintest, *outputs)

    def found(self, begins: np.ndarray) -> Mixed:
        """Of parts that begin at these rows."""
        some = np.concatenate(
            [np.arange(self.n_left[each]) + begins[each] for each in np.flatnonzero(self.n_left)] or [[]]
        )
        some = some.astype(np.int64)
        return Mixed(self.left[some], self.lowest.min(axis=0), None if self.filtered is None else self.filtered[some])


def mix(tables: Sequence[Any], rows: Rows, faintest: float, stride: int, results: Sequence[np.ndarray]) -> Mixed | None:
    """Write normal quantiles and, with a path, those of its states to `results`, `(D, n)` each, whose rows are `stride`
    numbers apart; None where there is no kernel to do it."""
    if (library := _library()) is None:
        return None
    asked = _Asked(tables, rows, faintest, stride, results, -(-len(rows.values) // TASK))
    library.longhmm_mixed(ctypes.byref(asked.struct), WHOLE(native.threads()))
    return asked.found(TASK * np.arange(len(asked.n_left)))


class Ahead:
    """The same of all rows on the way of a forward pass whose chunks begin at rows `begins`; see `How`."""

    def __init__(
        self, tables: Sequence[Any], rows: Rows, faintest: float, results: Sequence[np.ndarray], begins: np.ndarray
    ) -> None:
        n, self.begins = len(rows.values), begins
        filtered = np.empty((n, len(rows.transition)))  # of few rows: of what is not written the system keeps nothing
        self._asked = _Asked(tables, rows, faintest, n, results, len(begins), filtered)

    def address(self, start: int, chunk: int) -> int:
        """Where the kernel finds what to do with a block whose rows and chunks begin with these."""
        self._asked.struct.first, self._asked.struct.first_window = start, chunk
        return ctypes.addressof(self._asked.struct)

    def found(self) -> Mixed | None:
        """After the pass; None where some chunk had to be done on logarithms, which tell of no predictions."""
        return None if self._asked.lost[0] else self._asked.found(self.begins)


def _library() -> Any:
    library: Any = native.library() if native.available() else None
    return library if hasattr(library, "longhmm_mixed") else None


def at(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data
