"""What is done to a recording before it is modelled, as a description that can be stored and applied again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from longhmm.data.array_source import ArraySource, check_range
from longhmm.data.sequences import Sequences, open_data
from longhmm.data.sources import Source
from longhmm.errors import DataError

ROWS_AT_ONCE = 1 << 18
STRETCHES = 200  # medians through which the line of slow drift is laid
IN_MEMORY = 1 << 28  # bytes; longer recordings are read on demand


@dataclass(frozen=True)
class Preprocessing:
    """Steps in the order in which they are applied.

    Attributes:
        decimate: keep every n-th sample. The others are left out rather than averaged: an average over a change of
            state lies between the levels, where no state is.
        log: take natural logarithms; all values must be positive.
        detrend: subtract a straight line through medians of the recording, which keeps its middle level.
        normalise: subtract `centre` and divide by `scale`.
        centre, scale: by feature, measured on the first recording and kept for the others.
    """

    decimate: int = 1
    log: bool = False
    detrend: bool = False
    normalise: bool = False
    centre: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.decimate, bool) or not isinstance(self.decimate, int) or self.decimate < 1:
            raise DataError(f"decimate must be a whole number of at least 1, got {self.decimate!r}.")

    @property
    def changes_nothing(self) -> bool:
        return self.decimate == 1 and not (self.log or self.detrend or self.normalise)

    def measured(self, sequences: Sequences) -> Preprocessing:
        """With `centre` and `scale` taken from these data, where normalising needs them."""
        if not self.normalise or self.centre is not None:
            return self
        before = replace(self, normalise=False).apply(sequences)
        centre, scale = _moments(before)
        return replace(self, centre=tuple(centre.tolist()), scale=tuple(scale.tolist()))

    def apply(self, data: Any) -> Sequences:
        """The data after all steps, sequence by sequence; in memory where they are short enough, else lazily."""
        sequences = open_data(data)
        if self.changes_nothing and sequences.length * sequences.dim * sequences.dtype.itemsize > IN_MEMORY:
            return sequences
        if sequences.has_mask or sequences.has_states:
            raise DataError(f"{sequences.name} has a mask or known states, which are not preprocessed; leave them out.")
        if self.normalise and (self.centre is None or len(self.centre) != sequences.dim):
            raise DataError(
                f"{sequences.name} has {sequences.dim} features, but it is to be normalised like one with "
                f"{0 if self.centre is None else len(self.centre)}; choose columns like those of the fit."
            )
        source: Any = Prepared(sequences, self)
        offsets = source.offsets
        if source.length * source.dim * source.dtype.itemsize <= IN_MEMORY:
            rate, unit = source.rate, source.unit
            source = ArraySource(_whole(source), source.name)
            source.rate, source.unit = rate, unit
        return Sequences(source, offsets)

    def in_file_units(self, level: Any, feature: int = 0) -> np.ndarray:
        """A level of the model in the units of the file. (A line that was subtracted is not added again.)"""
        value = np.asarray(level, np.float64)
        if self.normalise and self.centre is not None and self.scale is not None:
            value = value * self.scale[feature] + self.centre[feature]
        return np.exp(value) if self.log else value

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for storage."""
        return asdict(self)

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> Preprocessing:
        """Inverse of `to_dict`."""
        known = {each.name for each in fields(Preprocessing)}
        if set(stored) - known:
            raise DataError(f"preprocessing must hold only {sorted(known)}, got also {sorted(set(stored) - known)}.")
        lists = {name: tuple(stored[name]) for name in ("centre", "scale") if stored.get(name) is not None}
        return Preprocessing(**{**stored, **lists})


class Prepared:
    """Another source after preprocessing, read on demand; positions count the samples that are kept."""

    in_memory = False

    def __init__(self, sequences: Sequences, steps: Preprocessing) -> None:
        self.steps, self._raw, self.parts = steps, sequences, [sequences.source]
        self.dim, self.name = sequences.dim, sequences.name
        self.rate = None if sequences.rate is None else sequences.rate / steps.decimate
        self.unit = sequences.unit
        kept = -(-np.diff(sequences.offsets) // steps.decimate)
        self.offsets = np.concatenate([[0], np.cumsum(kept)])
        self.length = int(self.offsets[-1])
        untouched = not (steps.log or steps.detrend or steps.normalise)
        self.dtype = sequences.dtype if untouched else np.result_type(sequences.dtype, np.float32)
        self._lines = _lines(self, sequences) if steps.detrend else None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` (exclusive)."""
        check_range(start, stop, self.length, self.name)
        parts = []
        while start < stop:
            number = int(np.searchsorted(self.offsets, start, side="right")) - 1
            end = min(stop, int(self.offsets[number + 1]))
            parts.append(self._part(number, start - int(self.offsets[number]), end - int(self.offsets[number])))
            start = end
        if not parts:
            return np.empty((0, self.dim), self.dtype)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _part(self, number: int, start: int, stop: int) -> np.ndarray:
        """Rows of one sequence, counted from its start."""
        values = self.logs(number, start, stop)
        if self._lines is not None:
            middle = 0.5 * (self.offsets[number + 1] - self.offsets[number] - 1)
            values = values - (np.arange(start, stop) - middle)[:, None] * self._lines[number]
        if self.steps.normalise:
            values = (values - np.asarray(self.steps.centre)) / np.asarray(self.steps.scale)
        return np.asarray(values, self.dtype)

    def logs(self, number: int, start: int, stop: int) -> np.ndarray:
        """Rows of one sequence after the steps that look at one sample at a time."""
        every, first = self.steps.decimate, int(self._raw.offsets[number])
        values = self._raw.read(first + start * every, first + (stop - 1) * every + 1).values[::every]
        if not self.steps.log:
            return values
        wrong = values <= 0
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            raise DataError(
                f"{self._raw.describe(first + (start + row) * every)} is {values[row][wrong[row]][0]:g}, which has no "
                "logarithm; leave out log, or mark such values as missing (NaN)."
            )
        return np.log(values.astype(np.float64))


def _lines(prepared: Prepared, sequences: Sequences) -> list[np.ndarray]:
    """Slope of every sequence and feature, per kept sample; medians are not moved by short events."""
    slopes = []
    for number in range(sequences.n_sequences):
        length = int(prepared.offsets[number + 1] - prepared.offsets[number])
        edges = np.linspace(0, length, min(STRETCHES, length) + 1).astype(np.int64)
        with np.errstate(all="ignore"):
            medians = np.stack(
                [
                    _medians(prepared.logs(number, int(a), min(int(b), int(a) + ROWS_AT_ONCE)))
                    for a, b in itertools.pairwise(edges)
                ]
            )
        middles = 0.5 * (edges[:-1] + edges[1:] - 1)
        slopes.append(np.array([_slope(middles, medians[:, feature]) for feature in range(sequences.dim)]))
    return slopes


def _medians(values: np.ndarray) -> np.ndarray:
    seen = np.isfinite(values)
    return np.array(
        [np.median(column[ok]) if ok.any() else np.nan for column, ok in zip(values.T, seen.T, strict=True)]
    )


def _slope(times: np.ndarray, values: np.ndarray) -> float:
    known = np.isfinite(values)
    if known.sum() < 2:
        return 0.0
    centred = times[known] - times[known].mean()
    return float(centred @ (values[known] - values[known].mean()) / (centred @ centred))


def _moments(sequences: Sequences) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature; the spread of a constant feature counts as 1."""
    count, total = np.zeros(sequences.dim), np.zeros(sequences.dim)
    squares = np.zeros(sequences.dim)
    shift: np.ndarray | None = None
    for start in range(0, sequences.length, ROWS_AT_ONCE):
        block = sequences.read(start, min(start + ROWS_AT_ONCE, sequences.length))
        values = np.where(block.observed, block.values.astype(np.float64), np.nan)
        if shift is None:  # keeps the digits of a small spread around a large mean
            shift = np.nan_to_num(_medians(values))
        centred = np.where(block.observed, values - shift, 0.0)
        count += block.observed.sum(axis=0)
        total += centred.sum(axis=0)
        squares += (centred**2).sum(axis=0)
    if (count == 0).any() or shift is None:
        raise DataError(f"feature {int(np.argmin(count))} of {sequences.name} has no values; choose other columns.")
    mean = total / count
    spread = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    return mean + shift, np.where(spread > 0, spread, 1.0)


def _whole(source: Source) -> np.ndarray:
    values = np.empty((source.length, source.dim), source.dtype)
    for start in range(0, source.length, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, source.length)
        values[start:stop] = source.read(start, stop)
    return values
