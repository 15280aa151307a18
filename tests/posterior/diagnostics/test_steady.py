"""Groups against one another: the stated error rate where all are alike, and the size of what differs."""

import numpy as np
import pytest
from scipy import stats

from longhmm.data.sequences import open_data
from longhmm.posterior.diagnostics.steady import Grouping, compared, groupings, shape, steady, worst


def tenths(n):
    return 10 * np.arange(n) // n


def test_cells_are_neighbours_of_equal_weight_that_hold_every_row():
    rng = np.random.default_rng(0)
    excess, weight, group = rng.normal(size=1000), rng.uniform(1.0, 2.0, 1000), rng.integers(0, 3, 1000)
    cells = compared(excess, weight, group, 10.0).cells
    assert np.array_equal(np.unique(cells.group, return_counts=True)[1], [10, 10, 10])
    for each in range(3):
        mine, rows = cells.group == each, np.flatnonzero(group == each)
        assert cells.weight[mine].sum() == pytest.approx(weight[rows].sum())
        assert np.ptp(cells.weight[mine]) < 4.0
        ends = np.searchsorted(rows, cells.last[mine]) + 1
        parts = np.split(rows, ends[:-1])
        np.testing.assert_allclose(cells.mean[mine], [excess[part].sum() / weight[part].sum() for part in parts])


def test_equal_weights_give_the_textbook_analysis_of_variance():
    values = np.random.default_rng(1).normal(size=100)
    found = compared(values, np.ones(100), tenths(100), 1.0)
    assert found.p_value == pytest.approx(stats.f_oneway(*values.reshape(10, 10)).pvalue)


def test_groups_that_are_alike_are_called_different_at_the_stated_rate():
    rng = np.random.default_rng(2)
    p_values = [compared(rng.normal(size=600), np.ones(600), tenths(600), 10.0).p_value for _ in range(600)]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3
    # Noise that is correlated for a few rows scatters as much within groups as between them.
    noise = np.convolve(rng.normal(size=600_000), np.ones(4) / 2, "same").reshape(200, 3000)
    p_values = [compared(each, np.ones(3000), tenths(3000), 10.0).p_value for each in noise]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_size_and_shape_of_what_changes():
    rng, n = np.random.default_rng(3), 40_000
    rising = compared(rng.normal(size=n) + np.linspace(-1.0, 1.0, n), np.ones(n), tenths(n), 10.0)
    assert rising.size == pytest.approx(2 / np.sqrt(12), rel=0.05) and rising.p_value < 1e-20
    described, rise, _ = shape(rising)
    assert rise == pytest.approx(2.0, abs=0.1) and described == "line"
    jumping = compared(rng.normal(size=n) + (np.arange(n) >= 12_300), np.ones(n), tenths(n), 10.0)
    described, _, step = shape(jumping)
    assert step.row == pytest.approx(12_300, abs=400) and step.after - step.before == pytest.approx(1.0, abs=0.05)
    assert described == "step"
    waves = compared(rng.normal(size=n) + np.sin(np.arange(n) / n * 4 * np.pi), np.ones(n), tenths(n), 10.0)
    assert shape(waves)[0] == "neither"


def test_too_few_rows_say_nothing():
    assert compared(np.zeros(0), np.zeros(0), np.zeros(0, int), 1.0) is None
    assert compared(np.ones(50), np.ones(50), tenths(50), 1.0) is None  # no scatter
    assert compared(np.arange(50.0), np.ones(50), np.zeros(50, int), 1.0) is None  # one group
    assert compared(np.arange(50.0), np.ones(50), tenths(50), 4.0) is None  # one cell in each
    assert steady(np.arange(50.0), np.ones(50), Grouping("sequence", tenths(50), False), np.arange(50), 4.0) is None
    joined = steady(np.arange(50.0), np.ones(50), Grouping("time", tenths(50), True), np.arange(50), 4.0)
    assert np.array_equal(joined.groups, [0, 5])


def test_rows_are_grouped_by_time_and_by_sequence():
    alone, together = open_data(np.zeros(100)), open_data(np.zeros(60), lengths=[40, 20])
    (time,) = groupings(alone, np.arange(100))
    assert time.ordered and np.array_equal(time.group, np.arange(100) // 10)
    time, sequence = groupings(together, np.array([0, 20, 39, 40, 59]))
    assert np.array_equal(time.group, [0, 5, 9, 0, 9]) and not time.ordered
    assert np.array_equal(sequence.group, [0, 0, 0, 1, 1])


def test_the_largest_beyond_chance_is_picked_and_small_ones_are_let_pass():
    assert worst([(1e-9, 0.05), (1e-4, 0.2), (0.0, 0.15)], 0.001, 0.1) == 1
    assert worst([(1e-4, 0.2)] * 20, 0.001, 0.1) is None  # 20 comparisons
    assert worst([(1e-9, 0.05)], 0.001, 0.1) is None
    assert worst([], 0.001, 0.1) is None
