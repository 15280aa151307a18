"""What default priors need to know about the data: a few numbers per feature."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longhmm.errors import DataError

LARGEST = 1e18


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

    @property
    def spread(self) -> np.ndarray:
        """The range of each feature, positive even for constant data."""
        return np.maximum(self.maximum - self.minimum, self.sd)

    @property
    def centre(self) -> np.ndarray:
        """The middle of the range of each feature."""
        return 0.5 * (self.maximum + self.minimum)


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
