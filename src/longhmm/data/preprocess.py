"""What is done to a recording before it is modelled, as a description that can be stored and applied again."""

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from longhmm.data.fret import fret
from longhmm.data.joining import offsets_of
from longhmm.data.sequences import IN_MEMORY, Sequences, open_data
from longhmm.data.source import ArraySource, Source, touched
from longhmm.errors import DataError, check_whole

ROWS_AT_ONCE = 1 << 18
STRETCHES = 200  # medians through which the line of slow drift is laid


@dataclass(frozen=True)
class Preprocessing:
    """Steps in the order in which they are applied."""

    decimate: int = 1  # keep every n-th sample; an average over a change of state would lie where no state is
    log: bool = False  # take natural logarithms; all values must be positive
    detrend: bool = False  # subtract a straight line through medians of the recording, which keeps its middle level
    normalise: bool = False  # subtract `centre` and divide by `scale`
    centre: tuple[float, ...] | None = None  # by feature, measured on the first recording and kept for the others
    scale: tuple[float, ...] | None = None
    fret: Mapping[str, float] | None = None  # of donor and acceptor, the efficiency, before all else

    def __post_init__(self) -> None:
        check_whole("decimate", self.decimate, 1, DataError)

    @property
    def changes_nothing(self) -> bool:
        return self.decimate == 1 and not (self.log or self.detrend or self.normalise or self.fret)

    def measured(self, sequences: Sequences) -> "Preprocessing":
        """With `centre` and `scale` taken from these data, where normalising needs them."""
        if not self.normalise or self.centre is not None:
            return self
        centre, scale = _moments(replace(self, normalise=False).apply(sequences))
        return replace(self, centre=tuple(centre.tolist()), scale=tuple(scale.tolist()))

    def apply(self, data: Any) -> Sequences:
        """The data after all steps, sequence by sequence; in memory where they are short enough, else lazily."""
        if self.fret is not None:
            return replace(self, fret=None).apply(fret(data, **self.fret))
        sequences = open_data(data)
        if self.changes_nothing:
            return sequences.at_hand()
        if len(sequences.parts) > 1:
            raise DataError(
                f"{sequences.name} has a mask, known states or covariates, which steps skip; leave them out."
            )
        if self.normalise and (self.centre is None or len(self.centre) != sequences.dim):
            like = f"like one with {0 if self.centre is None else len(self.centre)}"
            few = f"{sequences.name} has {sequences.dim} features, but it is to be normalised {like}"
            raise DataError(f"{few}; choose columns like those of the fit.")
        prepared = Prepared(sequences, self)
        if prepared.length * prepared.dim * prepared.dtype.itemsize > IN_MEMORY:
            return Sequences(prepared, prepared.offsets)
        starts = range(0, prepared.length, ROWS_AT_ONCE)
        pieces = [prepared.read(start, min(start + ROWS_AT_ONCE, prepared.length)) for start in starts]
        return Sequences(ArraySource(np.concatenate(pieces), prepared.name, like=prepared), prepared.offsets)

    def in_file_units(self, level: Any, feature: int = 0) -> np.ndarray:
        """A level of the model in the units of the file. (A line that was subtracted is not added again.)"""
        value = np.asarray(level, np.float64)
        if self.normalise and self.centre is not None and self.scale is not None:
            value = value * self.scale[feature] + self.centre[feature]
        return np.exp(value) if self.log else value

    def unit(self, unit: str | None) -> str | None:
        """What values are in after it, where they were in `unit`."""
        return "sd" if self.normalise else f"log {unit or ''}".strip() if self.log else unit

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> "Preprocessing":
        known = {each.name for each in fields(Preprocessing)}
        if set(stored) - known:
            raise DataError(f"preprocessing must hold only {sorted(known)}, got also {sorted(set(stored) - known)}.")
        lists = {name: tuple(stored[name]) for name in ("centre", "scale") if stored.get(name) is not None}
        return Preprocessing(**{**stored, **lists})


class Prepared(Source):
    """Another source after preprocessing, read on demand; positions count the samples that are kept."""

    def __init__(self, sequences: Sequences, steps: Preprocessing) -> None:
        self.steps, self._raw, self.parts = steps, sequences, [sequences.source]
        self.dim, self.name, self.names = sequences.dim, sequences.name, sequences.source.names
        self.unit = steps.unit(sequences.unit)
        self.rate = None if sequences.rate is None else sequences.rate / steps.decimate
        self.offsets = offsets_of(-(-np.diff(sequences.offsets) // steps.decimate))
        self.length = int(self.offsets[-1])
        untouched = not (steps.log or steps.detrend or steps.normalise)
        self.dtype = sequences.dtype if untouched else np.result_type(sequences.dtype, np.float32)
        self._slopes = [self._slope(number) for number in range(sequences.n_sequences)] if steps.detrend else None

    def fetch(self, start: int, stop: int) -> np.ndarray:
        read = []
        for number, first, last in touched(self.offsets, start, stop):
            values = self.logs(number, first, last)
            if self._slopes is not None:
                middle = 0.5 * (self.offsets[number + 1] - self.offsets[number] - 1)
                values = values - (np.arange(first, last) - middle)[:, None] * self._slopes[number]
            if self.steps.normalise:
                values = (values - np.asarray(self.steps.centre)) / np.asarray(self.steps.scale)
            read.append(np.asarray(values, self.dtype))
        return np.concatenate(read)

    def _slope(self, number: int) -> np.ndarray:
        """Of one sequence, by feature and kept sample; medians are not moved by short events."""
        length = int(self.offsets[number + 1] - self.offsets[number])
        edges = np.linspace(0, length, min(STRETCHES, length) + 1).astype(np.int64)
        spans = ((int(a), min(int(b), int(a) + ROWS_AT_ONCE)) for a, b in itertools.pairwise(edges))
        with np.errstate(all="ignore"):
            medians = np.stack([_medians(self.logs(number, *span)) for span in spans])
        slopes, middles = np.zeros(self.dim), 0.5 * (edges[:-1] + edges[1:] - 1)
        for feature, known in enumerate(np.isfinite(medians).T):
            if known.sum() > 1:
                slopes[feature] = np.polyfit(middles[known], medians[known, feature], 1)[0]
        return slopes

    def logs(self, number: int, start: int, stop: int) -> np.ndarray:
        """Rows of one sequence after the steps that look at one sample at a time."""
        every, first = self.steps.decimate, int(self._raw.offsets[number])
        values = self._raw.rows(first + start * every, first + (stop - 1) * every + 1).values[::every]
        if not self.steps.log:
            return values
        wrong = values <= 0
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            place, value = self._raw.describe(first + (start + row) * every), values[row][wrong[row]][0]
            remedy = "leave out log, or mark such values as missing (NaN)"
            raise DataError(f"{place} is {value:g}, which has no logarithm; {remedy}.")
        return np.log(values.astype(np.float64))


def _medians(values: np.ndarray) -> np.ndarray:
    columns = (column[np.isfinite(column)] for column in values.T)
    return np.array([np.median(column) if column.size else np.nan for column in columns])


def _moments(sequences: Sequences) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature; the spread of a constant feature counts as 1."""
    count, total, squares = np.zeros((3, sequences.dim))
    shift: np.ndarray | None = None
    for _, block in sequences.blocks(ROWS_AT_ONCE):
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
