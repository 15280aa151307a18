"""Sums and counts of numbers, by the kernel and by NumPy, against a loop over rows."""

import math
from contextlib import nullcontext
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest

from longhmm.backends import native
from longhmm.backends.tallied import Bins, numbers_in, tally

BINS = Bins(40, 2.0)


@pytest.fixture(
    params=[nullcontext, partial(patch.object, native, "available", lambda: False)], ids=["kernel", "NumPy"]
)
def backend(request):
    with request.param():
        yield


def numbers(n):
    """Two features with missing numbers, at the first row too, and rows that begin a sequence."""
    rng = np.random.default_rng(n)
    found = rng.normal(0.3, 1.5, (2, n))
    found[0, rng.random(n) < 0.1], found[1, 0] = np.nan, np.nan
    return found, np.unique(rng.integers(1, n, n // 7)) if n > 1 else np.zeros(0, np.int64)


@pytest.mark.parametrize("n", [1, 3, 70, 3000])
def test_sums_are_those_of_a_loop(n, backend):
    given, starts = numbers(n)
    found = tally(given, starts, BINS, 2.5)
    opens = set(starts.tolist())
    for d, column in enumerate(given):
        sums, counts = np.zeros(7), np.zeros(BINS.size, int)
        for t, x in enumerate(column):
            if math.isnan(x):
                continue
            away = x - found.origin[d]
            sums[[0, 1, 2, 6]] += 1, away, away**2, abs(x) > 2.5
            counts[min(max(math.floor((x + 2.0) * 10), 0), 39)] += 1
            if t and t not in opens and not math.isnan(column[t - 1]):
                before = column[t - 1] - found.origin[d]
                sums[3:6] += 1, away + before, away * before
        np.testing.assert_allclose([each[d] for each in found[1:-1]], sums, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(found.in_parts[d].sum(axis=0), counts)


def test_equal_numbers_do_not_vary(backend):
    found = tally(np.full((1, 999), 0.1), np.zeros(0), BINS, 2.5)
    assert (found.origin, found.squares, found.products) == (0.1, 0, 0)


@pytest.mark.parametrize("n", [1, 70, 3000])
def test_numbers_are_given_by_their_bins(n, backend):
    given, starts = numbers(n)
    counts = tally(given, starts, BINS, 2.5).in_parts
    wanted = np.random.default_rng(3).random((2, BINS.size)) < 0.3
    wanted[0, [0, -1]] = True
    for column, own, found in zip(given, wanted, numbers_in(given, BINS, wanted, counts), strict=True):
        bins = np.clip(np.floor((column + 2.0) * 10), 0, 39)
        expected = [x for x, which in zip(column, bins, strict=True) if not math.isnan(x) and own[int(which)]]
        np.testing.assert_array_equal(np.sort(found), np.sort(expected))


def test_nothing_there_is_nothing(backend):
    found = tally(np.full((1, 50), np.nan), np.zeros(0), BINS, 2.5)
    assert found.seen == found.pairs == found.in_parts.sum() == 0
