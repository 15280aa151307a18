"""Many sequences as one index space, with missing values, partially known states and covariates."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from longhmm.data.columns import lengths_of, open_covariates
from longhmm.data.executor import HERE, Executor
from longhmm.data.formats import open_source
from longhmm.data.joining import ConcatenatedSource, alongside, cut, is_many, join, strip_masks
from longhmm.data.lags import rows_before, rows_before_any
from longhmm.data.rows import Rows
from longhmm.data.shown import data_html, whereabouts
from longhmm.data.source import ArraySource, Columns, DaskSource, ShiftedSource, SlicedSource, Source, touched
from longhmm.errors import DataError

_CHECKED_AT_ONCE = 1 << 20  # values, so that looking at data in memory never needs a second copy of them
_LOOKED_AT = 1 << 15  # rows that are looked at closely, where some of them are missing
IN_MEMORY = 1 << 28  # bytes; longer recordings are read on demand
READERS = 8  # reads at a time from stores that may be far away

Stored = dict[str, np.ndarray]


class Sequences:
    """Positions 0 to `length`: sequence `i` is [offsets[i], offsets[i+1]). Made by `open_data`, read by `rows`.

    Beside the values may run a `mask` (nonzero = missing) of one feature or as many, `states` and `covariates`, sources
    themselves, all in `parts`. What lies in memory is checked here, once; the rest whenever it is read.
    `rate` (samples per second) and `unit` are what the files say, or None. `executor` runs passes over all of it.
    """

    executor: Executor = HERE
    context: np.ndarray | None = None  # rows before the first, the nearest first: lags of data that go on from others
    origin = 0  # how many rows of the same recording lie before the first

    def __init__(
        self, source: Source, offsets: np.ndarray, mask: Any = None, states: Any = None, covariates: Any = None
    ) -> None:
        given = {"values": source, "mask": mask, "states": states, "covariates": covariates}
        self.parts: dict[str, Source] = {name: part for name, part in given.items() if part is not None}
        self.source, self.offsets = source, np.asarray(offsets, np.int64)
        self.length, self.dim, self.dtype, self.name = source.length, source.dim, np.dtype(source.dtype), source.name
        self.rate, self.unit = source.rate, source.unit
        self.n_sequences = len(self.offsets) - 1
        self.has_mask, self.has_states = "mask" in self.parts, "states" in self.parts
        self.n_covariates = self.parts["covariates"].dim if "covariates" in self.parts else 0
        self.in_memory = all(isinstance(part, ArraySource) for part in self.parts.values())
        # One memory map, and nothing beside it: scattered rows can be taken from it in one call.
        self.mapped = isinstance(source, SlicedSource) and source.mapped and not self.in_memory and len(self.parts) == 1
        # Whether another process can read the data by itself, once it knows of them.
        self.portable = not any(isinstance(part, DaskSource) for part in self.parts.values())
        self.complete = self.in_memory and not self.has_mask  # and no NaN: every value is known to be there
        rows = max(1, _CHECKED_AT_ONCE // self.dim)
        for start in range(0, self.length if self.in_memory else 0, rows):
            self.complete &= self.check(start, self.stored(start, min(start + rows, self.length)))

    def rows(self, start: int, stop: int, lags: int = 0) -> Rows:
        """Positions `start` to `stop` (exclusive), whether or not they lie in one sequence; NaN is left in place."""
        return self._rows(start, stop, lags, self.stored(start - min(lags, start), stop))

    def blocks(self, size: int) -> Iterator[tuple[int, Rows]]:
        """All rows, so many at a time, each time with where they begin."""
        return ((start, self.rows(start, min(start + size, self.length))) for start in range(0, self.length, size))

    def rows_of(self, spans: list[tuple[int, int]], lags: int = 0) -> Iterator[Rows]:
        """What `rows` gives for each span; a Dask array is asked once, a store far away by several readers."""
        if isinstance(self.source, DaskSource) and len(self.parts) == 1:
            read = self.source.read_many([(start - min(lags, start), stop) for start, stop in spans])
            for span, values in zip(spans, read, strict=True):
                yield self._rows(*span, lags, {"values": values})
        elif self.source.concurrent and len(spans) > 1:
            with ThreadPoolExecutor(min(READERS, len(spans))) as pool:
                yield from pool.map(lambda span: self.rows(span[0], span[1], lags), spans)
        else:
            yield from (self.rows(*span, lags) for span in spans)

    def take(self, positions: np.ndarray, lags: int = 0) -> Rows:
        """The rows at any positions, for data in memory or mapped; leading axes are those of `positions`. Infinite
        values of a map are the caller's to refuse."""
        if not (self.mapped or self.in_memory):
            raise DataError(f"{self.name} is not in memory; use rows(start, stop), which takes consecutive positions")
        stored = {name: part.take(positions) for name, part in self.parts.items() if isinstance(part, SlicedSource)}
        return _as_rows(stored, rows_before_any(self, positions, lags) if lags else None)

    def stored(self, start: int, stop: int) -> Stored:
        """Values, and mask, states and covariates where there are such, as they are stored, unchecked."""
        return {name: part.read(start, stop) for name, part in self.parts.items()}

    def _rows(self, start: int, stop: int, lags: int, stored: Stored) -> Rows:
        """Rows out of what is stored from as many rows before `start` as lags need."""
        origin = start - min(lags, start)
        if not self.in_memory:
            self.check(origin, stored)
        whole = _as_rows(stored)
        if not lags:
            return whole
        own = Rows(*(None if each is None else each[start - origin :] for each in whole))
        seen = whole.values if whole.observed.all() else np.where(whole.observed, whole.values, np.nan)
        return own._replace(lags=rows_before(seen, start, stop, lags, self.offsets, self.context))

    def part(self, offsets: np.ndarray) -> Sequences:
        """The rows from the first to the last of `offsets`, cut into sequences there, without reading them."""
        start, stop = int(offsets[0]), int(offsets[-1])

        def cut_out(source: Source) -> Source:
            if isinstance(source, ArraySource):
                return ArraySource(source.values[start:stop], source.name, like=source)
            return ShiftedSource(source, start, stop - start, source)

        parts = {name: cut_out(part) for name, part in self.parts.items()}
        return Sequences(parts.pop("values"), np.asarray(offsets) - start, **parts).starting_at(self.origin + start)

    def split(self, held_out: float) -> tuple[Sequences, Sequences, bool]:
        """Training data, held-out data (the last share of one sequence; of many, whole sequences from the end), and
        whether the second continue the first; nothing is read."""
        if not 0 < held_out < 1:
            raise DataError(f"held_out must be a share between 0 and 1, got {held_out!r}.")
        wanted, number, offsets = self.length * (1 - held_out), 1, self.offsets
        if self.n_sequences > 1:
            number = int(np.clip(np.searchsorted(offsets, wanted), 1, self.n_sequences - 1))
        elif 0 < round(wanted) < self.length:
            offsets = np.array([0, round(wanted), self.length])
        else:
            raise DataError(f"{self.name} is too short to hold out {held_out:.0%}; pass the test data as test=.")
        return self.part(offsets[: number + 1]), self.part(offsets[number:]), self.n_sequences == 1

    def gathered(self, spans: Sequence[tuple[int, int]]) -> Sequences:
        """Several stretches of rows in memory, cut where sequences end: every piece is a sequence of its own."""
        cuts, at = [0], 0
        for start, stop in spans:
            inside = self.offsets[(self.offsets > start) & (self.offsets < stop)]
            cuts += [at + int(each) - start for each in (*inside, stop)]
            at += stop - start
        stored = [self.stored(*span) for span in spans]
        found = {k: ArraySource(np.concatenate([s[k] for s in stored]), p.name, like=p) for k, p in self.parts.items()}
        return Sequences(found.pop("values"), np.array(cuts), **found)

    def at_hand(self) -> Sequences:
        """The same data in memory, where they are short enough, since they will be read many times."""
        size = sum(part.length * part.dim * part.dtype.itemsize for part in self.parts.values())
        if self.in_memory or not self.portable or size > IN_MEMORY:
            return self
        kept = {"executor": self.executor, "context": self.context, "origin": self.origin}
        return self.gathered([(0, self.length)])._but(**kept)

    def lazy(self, start: int, stop: int) -> dict[str, Any]:
        """Rows of what another process cannot read by itself, as Dask arrays, for `holding`."""
        return {name: part.lazy(start, stop) for name, part in self.parts.items() if isinstance(part, DaskSource)}

    def holding(self, start: int, held: Stored) -> Sequences:
        """The same data with rows from `start` on at hand, as `lazy` named them."""
        parts = dict(self.parts)
        for name, values in held.items():
            there = ArraySource(values, f"what is at hand of {self.name}")
            parts[name] = ShiftedSource(there, -start, self.length, parts[name])
        return self._but(parts=parts, source=parts["values"])

    def following(self, context: np.ndarray) -> Sequences:
        """The same data with rows `(p, D)` before them, the nearest first, which their first rows look back at."""
        return self._but(context=context if len(context) else None)

    def run_by(self, executor: Executor) -> Sequences:
        return self._but(executor=executor)

    def starting_at(self, origin: int) -> Sequences:
        """The same data as the rows of a recording from `origin` on."""
        return self._but(origin=origin)

    def _but(self, **changes: Any) -> Sequences:
        same = copy.copy(self)
        same.__dict__.update(changes)
        return same

    def sequence_of(self, position: int | np.ndarray) -> int | np.ndarray:
        where = np.asarray(position)
        if where.size and not (where.min() >= 0 and where.max() < self.length):
            raise DataError(f"position {position} is outside {self.name}, which has positions 0 to {self.length - 1}")
        found = np.searchsorted(self.offsets, where, side="right") - 1
        return int(found) if found.ndim == 0 else found

    def describe(self, position: int) -> str:
        """A position as the user knows it, such as "row 17 of sequence 3 (file.npy)"."""
        sequence, name = int(self.sequence_of(position)), self.name
        if isinstance(self.source, ConcatenatedSource):
            name = self.source.parts[next(touched(self.source.starts, position, position + 1))[0]].name
        row = int(position) - int(self.offsets[sequence])
        return f"row {row} of {name}" if self.n_sequences == 1 else f"row {row} of sequence {sequence} ({name})"

    def __getstate__(self) -> dict[str, Any]:
        # Who works through the data here is of no use elsewhere.
        return {name: value for name, value in self.__dict__.items() if name != "executor"}

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        count = f"{self.n_sequences:,} sequence{'s' if self.n_sequences > 1 else ''}, {self.length:,} observations"
        return f"Sequences({self.name}: {count}, dim {self.dim}, {self.dtype}, {', '.join(whereabouts(self))})"

    _repr_html_ = data_html

    def check(self, start: int, stored: Stored) -> bool:
        """Refuses what data cannot be; says whether every value is there."""
        values, mask, states, covariates = (stored.get(name) for name in PARTS)
        assert values is not None
        if mask is not None:
            self._refuse("mask", start, mask, (mask != 0) & (mask != 1))
        missing = False
        for i in _not_finite(values):
            own = slice(i, i + _LOOKED_AT)
            infinite = np.isinf(some := values[own])
            self._refuse("values", start + i, some, infinite if mask is None else infinite & (mask[own] == 0))
            missing |= bool(np.isnan(some).any())
        if states is not None:
            self._refuse("states", start, states, (states < -1) | (states > np.iinfo(np.int32).max))
        if covariates is not None and len(_not_finite(covariates)):
            self._refuse("covariates", start, covariates, ~np.isfinite(covariates))
        return not missing

    def _refuse(self, what: str, start: int, values: np.ndarray, wrong: np.ndarray) -> None:
        if wrong.any():
            row, column = (int(each) for each in np.argwhere(wrong)[0])
            place = f"at position {start + row} ({self.describe(start + row)})"
            names = (self.parts[what].names if what == "covariates" else None) or range(column + 1)
            given = {"name": self.name, "value": values[row, column], "place": place, "column": names[column]}
            raise DataError(PARTS[what].format(**given))


# What runs along, and what is said where it is not what it must be.
PARTS = {
    "values": "{name} has an infinite value {place}, feature {column}; replace it by NaN to mark it as missing",
    "mask": "mask must hold True (missing) or False, but has {value} {place}; pass a boolean array",
    "states": "states must be -1 (unknown) or a state counted from 0, but is {value} {place}; mark others with -1",
    "covariates": "covariates must be finite, but covariate {column} is {value} {place}; fill it in, or drop that row",
}


def _not_finite(values: np.ndarray) -> np.ndarray:
    """Where stretches begin that may hold NaN or an infinite value: a sum is not finite if one of its terms is not, and
    costs little."""
    if values.dtype.kind != "f":
        return np.zeros(0, np.int64)
    whole, width = len(values) // _LOOKED_AT, values.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.einsum("ij->i", values[: whole * _LOOKED_AT].reshape(whole, _LOOKED_AT * width))  # faster than sum
        return np.flatnonzero(~np.isfinite([*sums, values[whole * _LOOKED_AT :].sum()])) * _LOOKED_AT


def _as_rows(stored: Stored, lags: np.ndarray | None = None) -> Rows:
    values, mask, states, covariates = (stored.get(name) for name in PARTS)
    assert values is not None
    observed = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, bool)
    if mask is not None:
        observed &= mask == 0
        if values.dtype.kind == "f" and (infinite := np.isinf(values)).any():
            # Allowed because it is masked, but it would spoil sums: infinity times zero is NaN.
            values = np.where(infinite, values.dtype.type(np.nan), values)
    known = None if states is None else states[..., 0].astype(np.int32)
    return Rows(values, observed, known, lags, None if covariates is None else covariates.astype(np.float64))


def open_data(
    data: Any,
    *,
    mask: Any = None,
    states: Any = None,
    covariates: Any = None,
    lengths: Any = None,
    dataset: str | None = None,
    columns: Columns = None,
    group: str | None = None,
) -> Sequences:
    """Open observations, lazily where they lie in files, as one or many sequences.

    `data` is an array, a table, the path of a file, or a list of such things (many sequences; a list of numbers is
    one). `mask` is True where an observation is missing, shaped (time,) or (time, feature), or a list like `data`;
    `states` holds known states (-1 = unknown), shaped (time,), or a list like `data`; `covariates` are further columns
    of `data` by name, a table, a mapping, an array shaped (time,) or (time, covariate), a list like `data`; `lengths`
    cuts one array, `group` names a column that does; `dataset` and `columns` choose what is read. NaN is missing, too.
    """
    if isinstance(data, Sequences):
        if any(option is not None for option in (mask, states, covariates, lengths, dataset, columns, group)):
            raise DataError(f"{data.name} is open already; give mask, states, covariates, lengths ... on opening")
        return data
    many, lengths = is_many(data), lengths if group is None else lengths_of(group, data, lengths)
    if many and lengths is not None:
        raise DataError("lengths cuts one array into sequences, but data is a list of sequences; leave lengths out")
    items, own_masks = strip_masks(list(data) if many else [data], columns)
    if many:
        source, offsets = join(items, "the list", dataset, columns)
    else:
        source = open_source(items[0], dataset=dataset, columns=columns)
        offsets = cut(lengths, source)

    def beside(given: Any, what: str, *dims: int, unmarked: int = 0) -> Source | None:
        return None if given is None else alongside(given, what, source, offsets, dims, unmarked)

    masks = beside(mask, "mask", 1, source.dim)
    if own_masks is not None:
        own = beside(own_masks if many else own_masks[0], "the mask of the masked array", 1, source.dim)
        both = [each.read(0, each.length) != 0 for each in (own, masks) if each is not None]
        masks = ArraySource(np.logical_or(both[0], both[-1]), "mask")
    further = open_covariates(covariates, items, many, dataset, columns, source, offsets)
    return Sequences(source, offsets, mask=masks, states=beside(states, "states", 1, unmarked=-1), covariates=further)
