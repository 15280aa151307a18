"""A small, fixed look at long data, and the few numbers per feature that default priors and starting points need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences, open_data
from longhmm.data.source import ArraySource
from longhmm.errors import DataError

LARGEST = 1e18  # windows are computed in single precision, in which squares of values still have to be numbers
# Fixed, so that default priors are the same whoever asks.
PIECES, PIECE_LENGTH, SEED = 64, 512, 0


@dataclass(frozen=True, eq=False)
class DataSummary:
    """Of the observed values of every feature: how many there are, mean, standard deviation (positive), smallest and
    largest `(D, 2)`, whether all are whole, and these values `(n, D)` themselves, NaN where missing."""

    n: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    ends: np.ndarray
    whole: np.ndarray
    values: np.ndarray

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataSummary) and np.array_equal(self.values.view(int), other.values.view(int))

    def __hash__(self) -> int:
        return hash((self.mean.tobytes(), self.sd.tobytes()))

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Percentiles `(D, 101)`; few families ask for them, and putting values in order takes long."""
        places, ordered = np.linspace(0.0, 1.0, 101), [np.sort(column) for column in _columns(self.values)]
        return np.stack([np.interp(places * (each.size - 1), np.arange(each.size), each) for each in ordered])

    def of(self, features: slice) -> DataSummary:
        """The same of some features alone."""
        n, mean, sd, ends, whole = (each[features] for each in (self.n, self.mean, self.sd, self.ends, self.whole))
        return DataSummary(n, mean, sd, ends, whole, self.values[:, features])

    @property
    def n_categories(self) -> int | None:
        """One more than the largest value, if values may be labels 0, 1, 2, ..."""
        return int(self.ends.max()) + 1 if self.whole.all() and self.ends.min() >= 0 else None

    @property
    def varies_less_than_counts(self) -> bool:
        """Whether a variance lies below the mean by more than chance: four standard errors of their ratio. In any
        mixture of Poisson distributions the variance is at least the mean: what varies less is no count."""
        variance = np.where(self.ends[:, 0] == self.ends[:, 1], 0.0, self.sd**2)
        return bool(np.any(variance < self.mean * (1 - 4 * np.sqrt(2 / self.n))))

    @property
    def spread(self) -> np.ndarray:
        """The range of each feature, positive even for constant data."""
        return np.maximum(self.ends[:, 1] - self.ends[:, 0], self.sd)

    @property
    def centre(self) -> np.ndarray:
        """The middle of the range of each feature."""
        return 0.5 * (self.ends[:, 1] + self.ends[:, 0])

    @property
    def typical_rate(self) -> np.ndarray:
        """The mean of an exponential prior for rates of counts: wide enough for a state that owns the largest ones."""
        return np.maximum(np.maximum(self.mean, 0.5 * self.ends[:, 1]), 0.1)


def summarise(values: np.ndarray) -> DataSummary:
    """Summarise values of shape (n, D), or (n,), in which NaN marks a missing value."""
    table = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    columns, ends = _columns(table), []
    for feature, column in enumerate(columns):
        if column.size == 0:
            raise DataError(
                f"Feature {feature} has no observed value among the {len(table)} rows that were looked at, "
                "so default priors cannot be scaled to it: give explicit priors, or leave the feature out."
            )
        ends.append((column.min(), column.max()))
        largest = float(np.abs(ends[-1]).max())
        if largest > LARGEST or 0.0 < largest < 1.0 / LARGEST:
            raise DataError(
                f"Feature {feature} has values of size {largest:.3g}, which must lie between {1 / LARGEST:g} and "
                f"{LARGEST:g} to be computed with: choose another unit, or normalise the data."
            )
    mean = np.array([column.mean() for column in columns])
    # A constant feature has no scale of its own: a tenth of its size, or one, is then as good a guess as any.
    sd = np.array([column.std() for column in columns])
    sd = np.where(sd > 1e-12 * np.abs(mean), sd, np.where(mean == 0.0, 1.0, 0.1 * np.abs(mean)))
    whole = np.array([column[0] % 1 == 0 and np.all(column == np.rint(column)) for column in columns])
    return DataSummary(np.array([column.size for column in columns]), mean, sd, np.array(ends), whole, table)


def _columns(table: np.ndarray) -> list[np.ndarray]:
    """The observed values of every feature."""
    columns = np.ascontiguousarray(table.T)
    return [column[~np.isnan(column)] for column in columns] if np.isnan(columns).any() else list(columns)


def subsample(sequences: Sequences) -> np.ndarray:
    """Rows from a few dozen stretches spread over the data, NaN where missing; the same rows every time."""
    if sequences.in_memory or sequences.mapped:  # all at once
        positions = (_starts(sequences)[:, None] + np.arange(PIECE_LENGTH)).ravel()
        rows = sequences.take(positions[positions < sequences.length])
        if sequences.in_memory or not np.isinf(rows.values).any():
            values = rows.values.astype(np.float64)
            return values if rows.observed.all() else np.where(rows.observed, values, np.nan)
        # Reading one by one finds the place of the infinite value and names it.
    return np.concatenate([rows.values for rows in subsample_rows(sequences)])


def _starts(sequences: Sequences, pieces: int = PIECES, piece_length: int = PIECE_LENGTH) -> np.ndarray:
    if sequences.length <= pieces * piece_length:
        return np.arange(0, sequences.length, piece_length)
    # One start in each of `pieces` equal shares: spread out, and jittered so that no period is aliased.
    jitter = np.random.default_rng(SEED).random(pieces)
    starts = np.floor((np.arange(pieces) + jitter) * (sequences.length / pieces)).astype(np.int64)
    return np.minimum(starts, sequences.length - piece_length)


def subsample_rows(
    sequences: Sequences, lags: int = 0, *, pieces: int = PIECES, piece_length: int = PIECE_LENGTH
) -> list[Rows]:
    """Stretches of consecutive rows, values float64 with NaN where missing, none crossing the end of a sequence."""
    starts, stretches = _starts(sequences, pieces, piece_length).tolist(), []
    spans = [(start, min(start + piece_length, sequences.length)) for start in starts]
    for (start, stop), rows in zip(spans, sequences.rows_of(spans, lags), strict=True):
        first, last = np.searchsorted(sequences.offsets, start, "right"), np.searchsorted(sequences.offsets, stop)
        inside = (sequences.offsets[first:last] - start).astype(int).tolist()
        values = np.where(rows.observed, rows.values.astype(np.float64), np.nan)
        for begin, end in pairwise([0, *inside, stop - start]):
            stretches.append(Rows(*(None if each is None else each[begin:end] for each in (values, *rows[1:]))))
    return stretches


def subsample_data(sequences: Sequences, **how: int) -> Sequences:
    """The stretches of `subsample_rows` as data of their own, with their known states and covariates."""
    values, _, states, _, covariates = map(list, zip(*subsample_rows(sequences, **how), strict=True))
    if sequences.dtype.kind in "iu" and not any(np.isnan(each).any() for each in values):
        values = [each.astype(sequences.dtype) for each in values]
    beside: Any = sequences.parts.get("covariates")
    beside = beside and ArraySource(np.concatenate(covariates), "covariates", like=beside)
    return open_data(values, states=states if sequences.has_states else None, covariates=beside)
