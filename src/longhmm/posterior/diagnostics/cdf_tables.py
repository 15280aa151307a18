"""Distribution functions of many observations: of every one, or, where that takes long, by tables of fewer values.

Counts are looked up. Others are polynomials on intervals: between two powers of 2 of the distance from a centre there
are equally many, of equal width, and twice as many until the function itself agrees at their ends. Where it never does,
or few values lie, and in the tails, where a small error of a probability is a large one of its quantile, values are
evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.layout import ladder
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.emissions import Emission
from longhmm.model.hmm import HMM
from longhmm.posterior.draws import in_float64

AT_ONCE = 1 << 16  # rows whose functions are evaluated together: longer data share the program
POINTS = 1 << 10  # values of a table that are evaluated together
FEWEST = 1 << 14  # rows for which polynomials are made
SAMPLE = 1 << 14  # rows that say where intervals are worth it
SHARE = 4  # rows for each value of a table, at least
BITS = range(5, 11)  # intervals between two powers of 2 are two to the power of these
ALONE = 0.002  # share of rows in intervals where polynomials are wrong, at most, unless intervals are the smallest
TERMS = 8  # of a polynomial
ERROR = 1e-11  # of a probability
FAINTEST = 2e-5  # probabilities below, or as near to 1, are evaluated: with the error above a quantile is off by 2e-7

NODES = np.cos(np.pi * (np.arange(TERMS)[::-1] + 0.5) / TERMS)  # Chebyshev's, of an interval from -1 to 1
TO_TERMS = np.linalg.inv(np.vander(NODES, increasing=True))
MANTISSA = 52  # bits
LINE = 8  # numbers in a line of the cache
EMPTY = np.zeros((2, 0), np.int32)
ONE = np.float64(1.0).view(np.int64)

# Of values (n, D): P(y_d < value | x = k) and P(y_d <= value | x = k), (n, K, D) each, or one where they are the same.
Below = Callable[[Rows], list[np.ndarray]]

_known: dict[Any, bool] = {}  # whether emissions of a kind have distribution functions


@jax.jit
def _of_rows(model: HMM, params: Mapping[str, Any], rows: Rows) -> tuple[jax.Array, ...] | None:
    found = model.emission.cdf_of_rows(params, rows)
    return found[:1] if found is not None and found[0] is found[1] else found


class Table(NamedTuple):
    """One feature's functions of all states. A value lies in the interval of w = least + scale |y - origin|, on the
    side below the origin or above; a count at w = y - origin."""

    origin: float
    scale: float
    least: float
    shift: int  # bits of w that say where in its interval it lies; 0 for counts
    first: int  # the others of the first interval
    slot: np.ndarray  # (2, count) which polynomials are those of an interval, or -1
    numbers: np.ndarray  # (slots, terms, padded) from the constant on, by t in [-1, 1), or in [0, 1) for counts

    def located(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places `(n,)` in the flat `slot`, or -1, and t."""
        count = self.slot.shape[1]
        if not self.shift:
            with np.errstate(invalid="ignore"):
                inside = (values >= self.origin) & (values < self.origin + count)
            return np.where(inside, values - self.origin, -1).astype(np.int64), np.zeros(len(values))
        bits = np.asarray(self.least + self.scale * np.abs(values - self.origin)).view(np.int64)
        at = (bits >> self.shift) - self.first
        within = (((bits << (MANTISSA - self.shift)) & ((1 << MANTISSA) - 1)) | ONE).view(np.float64)
        place = np.where((at < 0) | (at >= count), -1, np.where(values < self.origin, at, at + count))
        return place, 2 * within - 3

    def values(self, place: np.ndarray, t: np.ndarray) -> np.ndarray:
        """What lies at `t (T,)` of the intervals at places `(S,)`: `(S, T)`."""
        count = self.slot.shape[1]
        ends = [((place % count + self.first + each) << self.shift).view(np.float64) for each in (0, 1)]
        w = ends[0][:, None] + (ends[1] - ends[0])[:, None] * (0.5 + 0.5 * t)
        return np.asarray(self.origin + np.where(place < count, -1, 1)[:, None] * (w - self.least) / self.scale)

    def of_states(self, values: np.ndarray, spread: np.ndarray | None = None) -> np.ndarray:
        """`(n, padded)`, those of values; NaN where none are told."""
        place, t = self.located(values)
        slot = np.where(place < 0, -1, self.slot.ravel()[place])
        own, t = self.numbers[np.maximum(slot, 0)], (t if spread is None else spread)[:, None]
        found = own[:, -1]
        for term in range(self.numbers.shape[1] - 2, -1, -1):
            found = found * t + own[:, term]
        return np.where(slot[:, None] < 0, np.nan, found)


def distribution_functions(model: HMM, params: Mapping[str, Any], part: Sequences) -> Below | None:
    """What gives those of rows of `part`, whose missing values are filled; None where the emission has none."""
    kind = jax.tree.structure(model.emission)
    if kind not in _known:  # which tracing tells, that takes as long as thousands of rows
        _known[kind] = jax.eval_shape(_of_rows, model, params, part.rows(0, 1, model.lags)) is not None
    if not _known[kind]:
        return None
    size = min(AT_ONCE, ladder(part.length))
    return lambda rows: _exact(model, params, rows, size if len(rows.values) > 16 * POINTS else POINTS)


def tables(model: HMM, params: Mapping[str, Any], part: Sequences) -> list[Table] | None:
    """One for each feature; None where values are better evaluated one by one."""
    emission = model.emission.untied
    if type(emission).cdf_of_rows is not Emission.cdf_of_rows or emission.lags or model.emission.couples:
        return None
    if emission.support.is_discrete:
        return _counts(model, params, _values(part, 1))
    if part.length < FEWEST:
        return None
    few = _values(part, max(1, part.length // SAMPLE))
    return _polynomials(model, params, few[np.isfinite(few).all(axis=1)], part.length)


def weighted(chances: np.ndarray, of_states: np.ndarray) -> np.ndarray:
    """`(n, D)`, the mean over states of `(n, K, D)`."""
    features = np.moveaxis(of_states, -1, 0)
    return np.stack([np.einsum("nk,nk->n", chances, each) for each in features], axis=1)


def _exact(model: HMM, params: Mapping[str, Any], rows: Rows, size: int) -> list[np.ndarray]:
    """Of all rows, so many at a time."""
    parts = []
    for start in range(0, len(rows.values), size):
        own = Rows(*(None if each is None else each[start : start + size] for each in rows))
        n = len(own.values)
        if n < size:
            own = own.padded(size)
            own.values[n:] = own.values[0]  # in the support
        if own.values.dtype == np.float32:  # as values of tables are: one program for both
            own = own._replace(values=own.values.astype(np.float64))
        parts.append([each[:n] for each in in_float64(_of_rows, model, params, own)])
    return [np.concatenate(each) if len(each) > 1 else each[0] for each in zip(*parts, strict=True)]


def _counts(model: HMM, params: Mapping[str, Any], values: np.ndarray) -> list[Table] | None:
    """Of all whole numbers between the smallest and the largest, where these are few."""
    low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    if not (high - low + 1) * SHARE <= len(values):  # or nothing was observed
        return None
    each = np.repeat(np.arange(low, high + 1.0)[:, None], values.shape[1], axis=1)
    lower, upper = (ends := _at(model, params, each))[0], ends[-1]
    slot, numbers = np.tile(np.arange(len(each), dtype=np.int32), (2, 1)), np.stack([lower, upper - lower], axis=1)
    return [Table(low, 1.0, 0.0, 0, 0, slot, padded(own)) for own in np.moveaxis(numbers, -1, 0)]


def _polynomials(model: HMM, params: Mapping[str, Any], few: np.ndarray, length: int) -> list[Table] | None:
    """Those of features of so many rows, from a few of these; None where some need too many intervals. Features are
    evaluated side by side, since a call costs as much as many values."""
    positive = model.emission.untied.support is constraints.positive
    found = [_placed(seen, positive) for seen in few.T]
    at = np.append(NODES, 1.0)
    for width in BITS:
        cut = {d: _cut(each, width, few[:, d]) for d, each in enumerate(found) if each and not each.shift}
        rows = {d: np.bincount(table.located(few[:, d])[0], minlength=table.slot.size) for d, table in cut.items()}
        place = {d: np.flatnonzero(each * (length / len(few)) >= len(at)) for d, each in rows.items()}
        if None in found or not all(0 < each.size * len(at) * SHARE <= length for each in place.values()):
            return None
        each = np.repeat(few[:1], max(map(len, place.values())) * len(at), axis=0)
        for d, table in cut.items():
            each[: place[d].size * len(at), d] = table.values(place[d], at).ravel()
        of_states, *others = _at(model, params, each)
        if others:  # functions that leap
            return None
        for d, table in cut.items():
            own = of_states[: place[d].size * len(at), :, d].reshape(place[d].size, len(at), -1)
            numbers = np.einsum("pt,stk->spk", TO_TERMS, own[:, :-1])
            right = np.all(np.abs(numbers.sum(axis=1) - own[:, -1]) <= ERROR, axis=1)
            told, wrong = (rows[d][place[d][which]].sum() / len(few) for which in (right, ~right))
            if told < 1 - 1 / SHARE and not wrong:
                return None
            if wrong <= ALONE or (width == BITS[-1] and told >= 1 - 1 / SHARE):
                table.slot.ravel()[place[d][right]] = np.arange(np.count_nonzero(right))
                found[d] = table._replace(numbers=padded(numbers[right]))
        if all(each is not None and each.shift for each in found):
            return [each for each in found if each is not None]
    return None


def _placed(seen: np.ndarray, positive: bool) -> Table | None:
    """Where the intervals of a feature begin, which are not yet cut; None where there is nothing to cut."""
    if not len(seen):
        return None
    low, centre, high = np.sort(seen)[len(seen) * np.arange(1, 4) // 4]
    if not (low < high and (centre > 0 or not positive)):
        return None
    origin, scale, least = (0.0, 1 / centre, 0.0) if positive else (centre, 1 / (high - low), 1.0)
    return Table(origin, scale, least, 0, 0, EMPTY, np.zeros(0))


def _cut(table: Table, width: int, seen: np.ndarray) -> Table:
    """Into two to the power of `width` intervals between powers of 2, of which none has polynomials."""
    bits = np.asarray(table.least + table.scale * np.abs(seen - table.origin)).view(np.int64)
    shift = MANTISSA - width
    first = int(bits.min() >> shift)
    slot = np.full((2, int(bits.max() >> shift) - first + 1), -1, np.int32)
    return table._replace(shift=shift, first=first, slot=slot)


def padded(numbers: np.ndarray) -> np.ndarray:
    """With as many states as a block of the kernel has, and where a block lies in one line of the cache."""
    n = numbers.shape[-1]
    size = next((each for each in (2, 4, 8) if n <= each), -(-n // 8) * 8)
    room = np.zeros(numbers[..., 0].size * size + LINE)
    first = -(room.ctypes.data // room.itemsize) % LINE
    found = room[first : first + len(room) - LINE].reshape(*numbers.shape[:-1], size)
    found[..., :n] = numbers
    return found


def _at(model: HMM, params: Mapping[str, Any], values: np.ndarray) -> list[np.ndarray]:
    """Functions of values `(n, D)`, so many at a time that all tables share a program."""
    return _exact(model, params, Rows(values, np.ones(values.shape, bool)), POINTS)


def _values(part: Sequences, step: int) -> np.ndarray:
    """`(n, D)` of every so many rows, NaN where missing."""
    near = part.in_memory or part.mapped
    rows = part.take(np.arange(0, part.length, step)) if near and step > 1 else part.rows(0, part.length)
    values = rows.values if rows.observed.all() else np.where(rows.observed, rows.values, np.nan)
    return np.asarray(values if near else values[::step], np.float64)
