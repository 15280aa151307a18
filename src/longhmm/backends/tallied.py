"""Sums of numbers that should be standard normal, and counts in bins: by tallied.h, or by NumPy in its place."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from longhmm.backends import native
from longhmm.backends.mixed import ADDRESS, REAL, WHOLE, at

PARTS, SUMS = 4, 7  # as in tallied.h


class _Tallied(ctypes.Structure):
    """See tallied.h."""

    _fields_ = (
        *((name, WHOLE) for name in ("rows", "features", "n_starts", "bins")),
        *((name, ADDRESS) for name in ("numbers", "starts", "origin")),
        *((name, REAL) for name in ("start", "per", "far")),
        *((name, ADDRESS) for name in ("wanted", "found", "first", "counts", "sums")),
    )


class Bins(NamedTuple):
    """So many of equal width between -most and most; the first and the last hold all numbers beyond."""

    size: int
    most: float

    @property
    def per(self) -> float:
        return self.size / (2 * self.most)

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """Those of numbers `(n,)`, and `size` where one is missing."""
        found = np.clip((numbers + self.most) * self.per, 0, self.size - 1)
        return np.where(np.isnan(found), self.size, found).astype(np.int64)


class Tally(NamedTuple):
    """Of each feature `(D,)`: distances from `origin`, their pairs of neighbours, and counts `(D, PARTS, bins)`."""

    origin: np.ndarray
    seen: np.ndarray
    sum: np.ndarray
    squares: np.ndarray
    pairs: np.ndarray
    of_pairs: np.ndarray  # sum of both
    products: np.ndarray
    far: np.ndarray  # how many numbers lie beyond
    in_parts: np.ndarray


def tally(numbers: np.ndarray, starts: np.ndarray, bins: Bins, far: float) -> Tally:
    """Of numbers `(D, n)`, NaN where missing; rows at `starts`, rising, have nothing to do with the one before."""
    starts = np.ascontiguousarray(starts, np.int64)
    origin = np.array([_some(column) for column in numbers])
    counts = np.zeros((len(numbers), PARTS, bins.size + 1), np.uint32)
    sums = np.zeros((len(numbers), PARTS, SUMS))
    if not _run(numbers, starts, origin, bins, far, None, None, None, counts, sums):
        sums[:, 0] = [_sums(*each, starts, far) for each in zip(numbers, origin, strict=True)]
        counts[:, 0] = [np.bincount(bins.of(column), minlength=bins.size + 1) for column in numbers]
    return Tally._make([origin, *sums.sum(axis=1).T, counts[..., :-1]])


def numbers_in(numbers: np.ndarray, bins: Bins, wanted: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """Of each feature of numbers `(D, n)`, those in bins that are `wanted (D, bins)`, in any order; `counts` as in
    `Tally` say how many there are, so that no more memory is touched."""
    wanted = np.ascontiguousarray(wanted, bool)
    sizes = np.stack([own[:, which].sum(axis=1, dtype=np.int64) for own, which in zip(counts, wanted, strict=True)])
    first, found = np.cumsum(sizes).reshape(sizes.shape) - sizes, np.empty(sizes.sum())
    if not _run(numbers, first[0, :0], np.zeros(len(numbers)), bins, 0.0, wanted, found, first, None, None):
        every = np.pad(wanted, ((0, 0), (0, 1)))
        return [column[own[bins.of(column)]] for column, own in zip(numbers, every, strict=True)]
    return np.split(found, first[1:, 0])


def _run(numbers: np.ndarray, starts: np.ndarray, origin: np.ndarray, bins: Bins, far: float, *arrays: Any) -> bool:
    library: Any = native.library() if native.available() else None
    if not hasattr(library, "longhmm_tallied"):
        return False
    sizes = (numbers.shape[1], len(numbers), len(starts), bins.size)
    asked = _Tallied(*sizes, at(numbers), at(starts), at(origin), -bins.most, bins.per, far, *map(at, arrays))
    library.longhmm_tallied(ctypes.byref(asked), WHOLE(native.threads()))
    return True


def _some(column: np.ndarray) -> float:
    """A number that is there; all are the same distance from it where they are equal."""
    for part in (column[:1000], column):
        if len(seen := np.flatnonzero(~np.isnan(part))):
            return float(part[seen[0]])
    return 0.0


def _sums(column: np.ndarray, origin: float, starts: np.ndarray, far: float) -> list[float]:
    seen, away = ~np.isnan(column), column - origin
    own, follows = away[seen], seen[1:] & seen[:-1]
    follows[starts - 1] = False
    later, before = away[1:][follows], away[:-1][follows]
    beyond = np.count_nonzero(np.abs(column[seen]) > far)
    return [len(own), own.sum(), own @ own, len(later), (later + before).sum(), later @ before, beyond]
