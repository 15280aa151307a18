"""Distribution functions weighted by predicted states, from tables, in the kernel: what mixed.h is told, and finds."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from longhmm.backends import native
from longhmm.backends.block import Blocks, How
from longhmm.backends.stream import Stream
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM

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
        *((name, WHOLE) for name in ("features", "padded", "terms", "stride", "wide")),
        *((name, ADDRESS) for name in ("values", "spread", "path", "places")),
        ("faintest", REAL),
        *((name, ADDRESS) for name in ("quantiles", "given", "lowest", "n_left", "left", "left_predicted")),
    )


class Mixed:
    """What is found of rows, block by block. Blocks may be begun again before they are settled.

    Attributes:
        quantiles: `(D, n)` of the normal distribution, at `P(y_t <= observed | y_0 .. y_{t-1})`; NaN if not told.
        given: the same at `P(y_t <= observed | x_t)`, with a path of states; else `(0, n)`.
        lowest: `(D,)`, the smallest value.
    """

    def __init__(
        self,
        tables: Sequence[Any],
        values: np.ndarray,
        spread: np.ndarray | None,
        path: np.ndarray | None,
        faintest: float,
    ) -> None:
        """Of values `(n, D)`, single or double, NaN where missing; counts lie at `spread` of their steps; `path` are
        the states `(n,)` of all rows."""
        n, D = values.shape
        terms, self.padded = tables[0].numbers.shape[1:]
        self.tables, self.values, self.spread, self.path, self.faintest = tables, values, spread, path, faintest
        self.quantiles, self.lowest = np.empty((D, n)), np.full(D, np.inf)
        self.given = np.empty((0 if path is None else D, n))
        self._n_left, self._settled = np.zeros(1, np.int64), 0
        self._left, self._left_predicted = np.empty(n, np.int64), np.empty((n, self.padded))
        own = (_Places(*each[:5], each.slot.shape[1], at(each.slot), at(each.numbers)) for each in tables)
        self._places = (_Places * D)(*own)
        given = (at(values), at(spread), at(path), ctypes.addressof(self._places), faintest)
        found = (self.quantiles, self.given, self.lowest, self._n_left, self._left, self._left_predicted)
        self._told = _Mixed(D, self.padded, terms, n, values.dtype == np.float64, *given, *map(at, found))

    def begin(self, row: int) -> np.ndarray:
        """What the kernel is told of a block that begins with this row."""
        self._n_left[0] = self._settled
        return np.array([ctypes.addressof(self._told), row, self.padded], np.uint64)

    def settle(self) -> None:
        """The block last begun is right."""
        self._settled = int(self._n_left[0])

    def add(self, predicted: np.ndarray, start: int) -> None:
        """Rows from `start` on, whose predicted states `(m, K)` were found elsewhere."""
        library: Any = native.library() if native.available() else None
        if library is None:
            return self._on_host(predicted, start)
        wide = np.zeros((len(predicted), self.padded))
        wide[:, : predicted.shape[1]] = predicted
        told, *_ = map(int, self.begin(start))
        library.longhmm_mix(ADDRESS(told), ADDRESS(at(wide)), *map(WHOLE, (start, len(wide), native.threads())))
        self.settle()

    def _on_host(self, predicted: np.ndarray, start: int) -> None:
        """By NumPy in its place."""
        from scipy.special import ndtri

        rows, n_states = slice(start, start + len(predicted)), predicted.shape[1]
        values, spread = self.values[rows].astype(np.float64), None if self.spread is None else self.spread[rows]
        untold = np.zeros(len(predicted), bool)
        for d, table in enumerate(self.tables):
            of_states = table.of_states(values[:, d], None if spread is None else spread[:, d])
            found = [(self.quantiles, np.einsum("nk,nk->n", predicted, of_states[:, :n_states]))]
            if self.path is not None:
                found.append((self.given, of_states[np.arange(len(predicted)), self.path[rows]]))
            for to, chance in found:
                told = (chance >= self.faintest) & (chance <= 1 - self.faintest)
                to[d, rows] = ndtri(np.where(told, chance, np.nan))
                untold |= ~told & ~np.isnan(values[:, d])
        self.lowest[:] = np.fmin(self.lowest, np.fmin.reduce(values, axis=0))
        which = np.flatnonzero(untold)
        own = slice(self._settled, self._settled + len(which))
        self._left[own], self._left_predicted[own, :n_states] = start + which, predicted[which]
        self._settled = own.stop

    def left(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows `(m,)` that were observed, but of which not everything was told, and what was predicted of them."""
        order = np.argsort(self._left[: self._settled])
        return self._left[order], self._left_predicted[order]


def hand_over(model: HMM, params: Mapping[str, np.ndarray], sequences: Sequences, mixed: Mixed) -> bool:
    """Let the kernel hand over the predicted states of all rows as it finds them; False where it does not run here."""
    blocks = Blocks(How(params, forward_only=True, mixed=mixed), model, sequences)
    if not (blocks.backend.in_place and sequences.executor.here):
        return False
    for _ in Stream(blocks).outcomes():
        mixed.settle()
    return True


def at(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data
