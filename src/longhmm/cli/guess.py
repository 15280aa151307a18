"""Which emission suits the data, judged by their type: a place to begin, said aloud."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from longhmm.cli.options import EmissionName
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError
from longhmm.model.subsample import subsample

MOST_CATEGORIES = 64
LARGE_COUNTS = 1000  # beyond, counts are as good as real numbers
DECADES = 3  # positive values that span more are usually multiplicative


class Guess(NamedTuple):
    """An emission and the reason for it."""

    name: EmissionName
    reason: str


def guess_emission(sequences: Sequences) -> Guess:
    """Look at a sample of the data."""
    values = np.asarray(subsample(sequences), np.float64)
    known = values[np.isfinite(values)]
    if known.size == 0:
        raise DataError(f"{sequences.name} has no values to look at; choose other columns.")
    if not np.all(known == np.rint(known)):
        return _of_real_numbers(known, sequences.dim)
    if known.min() < 0:
        return Guess(EmissionName.gaussian, "the values are whole numbers of both signs, like those of a converter")
    if known.max() <= 1:
        return Guess(EmissionName.bernoulli, "all values are 0 or 1")
    # In any mixture of Poisson laws the variance is at least the mean: what varies less is no count of events.
    narrow = any(_varies_less_than_counts(column[np.isfinite(column)]) for column in values.T)
    if narrow and known.max() < MOST_CATEGORIES and sequences.dim == 1:
        return Guess(
            EmissionName.categorical, "the values are few whole numbers that vary less than counts would, like labels"
        )
    if narrow or known.mean() > LARGE_COUNTS:
        return Guess(EmissionName.gaussian, "the values are whole numbers too large or too alike for counts")
    return Guess(EmissionName.poisson, "the values are counts; if they are labels, give --emission categorical")


def _varies_less_than_counts(column: np.ndarray) -> bool:
    """Whether the variance lies below the mean by more than chance: four standard errors of their ratio."""
    n = len(column)
    return n > 0 and bool(column.var() < column.mean() * (1 - 4 * np.sqrt(2 / n)))


def _of_real_numbers(known: np.ndarray, dim: int) -> Guess:
    low, high = np.quantile(known, [0.01, 0.99])
    if known.min() > 0 and high > 10**DECADES * low:
        return Guess(
            EmissionName.lognormal, f"the values are positive and span {np.log10(high / low):.0f} orders of magnitude"
        )
    more = "; with outliers, try --emission student-t" if dim == 1 else ""
    return Guess(EmissionName.gaussian, f"the values are real numbers{more}")
