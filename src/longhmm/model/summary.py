"""A small, fixed look at long data, and the few numbers per feature that default priors and starting points need."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError

LARGEST = 1e18
# Fixed, so that default priors are the same whoever asks.
PIECES, PIECE_LENGTH, SEED = 64, 512, 0


class DataSummary(NamedTuple):
    """Numbers per feature over the observed values; every `sd` is positive."""

    n: int
    mean: np.ndarray
    sd: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray
    median: np.ndarray
    quantiles: np.ndarray
    n_categories: int | None

    def of(self, features: slice) -> DataSummary:
        """The same of some features alone."""
        parts: dict[str, Any] = {
            name: value[features] for name, value in self._asdict().items() if isinstance(value, np.ndarray)
        }
        quantiles = parts["quantiles"]
        whole = bool(np.all(quantiles == np.floor(quantiles))) and quantiles.min() >= 0
        return self._replace(**parts, n_categories=int(quantiles[:, -1].max()) + 1 if whole else None)

    @property
    def spread(self) -> np.ndarray:
        """The range of each feature, positive even for constant data."""
        return np.maximum(self.maximum - self.minimum, self.sd)

    @property
    def centre(self) -> np.ndarray:
        """The middle of the range of each feature."""
        return 0.5 * (self.maximum + self.minimum)

    @property
    def typical_rate(self) -> np.ndarray:
        """The mean of an exponential prior for rates of counts: wide enough for a state that owns the largest ones."""
        return np.maximum(np.maximum(self.mean, 0.5 * self.maximum), 0.1)


def _check_scale(feature: int, column: np.ndarray) -> None:
    """Windows are computed in single precision, in which squares of such values still have to be numbers."""
    sizes = np.abs(column)
    largest = float(sizes.max())
    if largest > LARGEST or 0.0 < largest < 1.0 / LARGEST:
        raise DataError(
            f"Feature {feature} has values of size {largest:.3g}, which must lie between {1 / LARGEST:g} and "
            f"{LARGEST:g} to be computed with: choose another unit, or normalise the data."
        )


def _percentiles(column: np.ndarray) -> np.ndarray:
    """All 101 of them; for so many, sorting once is faster than looking for each."""
    places = np.linspace(0.0, 1.0, 101) * (column.size - 1)
    return np.interp(places, np.arange(column.size), np.sort(column))


def summarise(values: np.ndarray) -> DataSummary:
    """Summarise values of shape (n, D), or (n,), in which NaN marks a missing value."""
    table = np.asarray(values, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    columns = [column[~np.isnan(column)] for column in table.T]
    for feature, column in enumerate(columns):
        if column.size == 0:
            raise DataError(
                f"Feature {feature} has no observed value among the {len(table)} rows that were looked at, "
                "so default priors cannot be scaled to it: give explicit priors, or leave the feature out."
            )
        _check_scale(feature, column)
    mean = np.array([column.mean() for column in columns])
    # A constant feature has no scale of its own: a tenth of its size, or one, is then as good a guess as any.
    sd = np.array([column.std() for column in columns])
    sd = np.where(sd > 1e-12 * np.abs(mean), sd, np.where(mean == 0.0, 1.0, 0.1 * np.abs(mean)))
    quantiles = np.stack([_percentiles(column) for column in columns])
    whole = all(bool(np.all(column == np.floor(column))) and column.min() >= 0 for column in columns)
    return DataSummary(
        n=len(table),
        mean=mean,
        sd=sd,
        minimum=quantiles[:, 0],
        maximum=quantiles[:, -1],
        median=quantiles[:, 50],
        quantiles=quantiles,
        n_categories=int(quantiles[:, -1].max()) + 1 if whole else None,
    )


def subsample(sequences: Sequences) -> np.ndarray:
    """Rows from a few dozen stretches spread over the data, NaN where missing; the same rows every time."""
    return np.concatenate([rows.values for rows in subsample_rows(sequences)])


def subsample_rows(
    sequences: Sequences, lags: int = 0, *, pieces: int = PIECES, piece_length: int = PIECE_LENGTH, seed: int = SEED
) -> list[Rows]:
    """Stretches of consecutive rows, values float64 with NaN where missing, none crossing the end of a sequence."""
    if sequences.length <= pieces * piece_length:
        starts = np.arange(0, sequences.length, piece_length)
    else:
        # One start in each of `pieces` equal shares: spread out, and jittered so that no period is aliased.
        share = sequences.length / pieces
        jitter = np.random.default_rng(seed).random(pieces)
        starts = np.floor((np.arange(pieces) + jitter) * share).astype(np.int64)
        starts = np.minimum(starts, sequences.length - piece_length)
    stretches = []
    spans = [(start, min(start + piece_length, sequences.length)) for start in starts.tolist()]
    for (start, stop), rows in zip(spans, sequences.rows_of(spans, lags), strict=True):
        inside = sequences.offsets[(sequences.offsets > start) & (sequences.offsets < stop)] - start
        values = np.where(rows.observed, rows.values.astype(np.float64), np.nan)
        for first, last in pairwise([0, *inside.astype(int).tolist(), stop - start]):
            stretches.append(Rows(*(None if each is None else each[first:last] for each in (values, *rows[1:]))))
    return stretches


def subsample_data(sequences: Sequences, **how: int) -> Sequences:
    """The stretches of `subsample_rows` as data of their own, with their known states and covariates."""
    values, _, states, _, covariates = map(list, zip(*subsample_rows(sequences, **how), strict=True))
    if sequences.dtype.kind in "iu" and not any(np.isnan(each).any() for each in values):
        values = [each.astype(sequences.dtype) for each in values]
    known, beside = sequences.has_states, sequences.n_covariates
    return open_data(values, states=states if known else None, covariates=covariates if beside else None)


class Suit(NamedTuple):
    """How well a family suits some data, and why; the strongest is proposed (the Gaussian always has 0)."""

    strength: int
    reason: str


class Sample:
    """Some rows of the data `(n, D)`, NaN where missing, as families look at them to say whether they suit."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = np.asarray(values, np.float64)
        self.dim = self.values.shape[1]
        self.known = self.values[np.isfinite(self.values)]

    @cached_property
    def whole(self) -> bool:
        """Whether all values are whole numbers."""
        return bool(np.all(self.known == np.rint(self.known)))

    @cached_property
    def varies_less_than_counts(self) -> bool:
        """Whether a variance lies below the mean by more than chance: four standard errors of their ratio.

        In any mixture of Poisson distributions the variance is at least the mean: what varies less is no count.
        """
        columns = [column[np.isfinite(column)] for column in self.values.T]
        return any(
            bool(column.var() < column.mean() * (1 - 4 * np.sqrt(2 / len(column)))) for column in columns if len(column)
        )
