"""Envelopes lose no spike, pass over what is missing, and never read more than they must."""

import numpy as np
import pytest

import longhmm.data.envelopes as envelopes
from longhmm.data.envelopes import envelope, step_for
from longhmm.data.sequences import open_data
from longhmm.errors import DataError


def by_hand(values, step):
    parts = [values[at : at + step] for at in range(0, len(values), step)]
    return np.array([np.nanmin(part, axis=0) for part in parts]), np.array([np.nanmax(part, axis=0) for part in parts])


@pytest.mark.parametrize(("length", "bins"), [(1, 10), (10, 10), (11, 10), (1000, 7), (4097, 64)])
def test_every_bin_holds_its_extremes(length, bins, monkeypatch):
    monkeypatch.setattr(envelopes, "READ_AT_ONCE", 64)  # many blocks even here
    values = np.random.default_rng(length).normal(size=(length, 2))
    found = envelope(open_data(values), bins=bins)
    assert len(found.low) <= bins
    low, high = by_hand(values, found.step)
    np.testing.assert_array_equal(found.low, low)
    np.testing.assert_array_equal(found.high, high)


def test_a_part_starts_where_it_was_asked_to():
    values = np.arange(1000.0)
    found = envelope(open_data(values), 103, 900, bins=50)
    assert found.low[0, 0] == 103 and found.high[-1, 0] == 899 and found.step == 16


def test_one_spike_in_a_million_is_seen():
    values = np.zeros(1_000_000, np.float32)
    values[654_321] = 9.0
    found = envelope(open_data(values), bins=500)
    assert found.high.max() == 9.0 and (found.high[:, 0] > 0).sum() == 1
    assert np.argmax(found.high[:, 0]) == 654_321 // found.step


def test_missing_values_are_passed_over():
    values = np.array([np.nan, 2.0, 1.0, np.nan, np.nan, np.nan, np.nan, 5.0])
    found = envelope(open_data(values), bins=4)
    np.testing.assert_array_equal(found.low[:, 0], [2.0, 1.0, np.nan, 5.0])
    masked = envelope(open_data(np.array([1, 7, 3, 4]), mask=np.array([False, True, False, False])), bins=2)
    np.testing.assert_array_equal(masked.high[:, 0], [1.0, 4.0])


def test_steps_are_powers_of_two_and_no_larger_than_needed():
    assert [step_for(n, 100) for n in (1, 100, 101, 200, 201, 20_000_000)] == [1, 1, 2, 2, 4, 262_144]


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 3), (0, 11)])
def test_ranges_outside_the_data_are_refused(start, stop):
    with pytest.raises(DataError, match="start and stop must satisfy 0 <= start < stop <= 10, got start"):
        envelope(open_data(np.zeros(10)), start, stop)
    with pytest.raises(DataError, match="bins must be a whole number of at least 1, got 0"):
        envelope(open_data(np.zeros(10)), bins=0)
