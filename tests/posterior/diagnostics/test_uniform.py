"""Bands for distribution functions of ranks hold what they say."""

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from longhmm.backends import native
from longhmm.backends.tallied import Bins, tally
from longhmm.posterior.diagnostics.uniform import ecdf_band, normal_distances, points, uniform_p_values


def test_bands_hold_all_points_of_a_distribution_function_at_once():
    n, draws = 300, 99
    lower, upper = ecdf_band(n, draws, 0.1)
    ranks = np.random.default_rng(5).integers(0, draws + 1, (4000, n))
    below = np.stack([(ranks < each).sum(axis=1) for each in points(draws)], axis=1)
    outside = np.mean(((below < lower) | (below > upper)).any(axis=1))
    assert 0.07 < outside < 0.11  # counts are whole numbers, so that the band is a little too wide
    small = np.mean(uniform_p_values(below, n, draws) < 0.1)
    assert small == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 4000) + 0.01)


def test_ranks_that_are_pushed_to_an_end_are_seen():
    draws, n = 99, 300
    ranks = np.random.default_rng(1).beta(1.3, 1.0, n) * (draws + 1)
    below = np.array([(ranks < each).sum() for each in points(draws)])
    assert uniform_p_values(below, n, draws) < 0.01


@pytest.mark.parametrize("n", [1, 7, 300, 20_000])
def test_distances_need_no_order(n):
    rng = np.random.default_rng(n)
    uniform, ranks = rng.random(n), np.arange(n + 1) / n
    some = np.stack([uniform, uniform**1.3, uniform.round(1), 0.2 + 0.3 * uniform, rng.beta(0.3, 0.3, n), 0 * uniform])
    numbers = ndtri(some.clip(1e-12, 1 - 1e-12))
    below = ndtr(np.sort(numbers, axis=1))
    expected = np.maximum(np.max(ranks[1:] - below, axis=1), np.max(below - ranks[:-1], axis=1))
    for bins in (Bins(64, 4.0), Bins(1 << 14, 4.0)):
        for kernel in (nullcontext(), patch.object(native, "available", lambda: False)):
            with kernel:
                counts = tally(numbers, np.zeros(0), bins, 4.0).in_parts
                found = normal_distances(numbers, bins, counts)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
