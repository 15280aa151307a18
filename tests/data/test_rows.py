"""Consecutive rows, filled up to the size of a program."""

import numpy as np

from longhmm.data.rows import Rows


def test_rows_that_fill_up_are_not_observed():
    rows = Rows(
        values=np.array([[1.0], [2.0]]),
        observed=np.array([[True], [False]]),
        states=np.array([1, -1]),
        lags=np.array([[[0.5]], [[1.0]]]),
        covariates=np.array([[3.0], [4.0]]),
    )
    longer = rows.padded(4)
    assert [len(each) for each in longer] == [4] * 5
    for before, after in zip(rows, longer, strict=True):
        np.testing.assert_array_equal(after[:2], before)
        assert after.dtype == before.dtype
    assert not longer.observed[2:].any() and np.all(longer.states[2:] == -1)
    assert np.all(np.isfinite(longer.covariates))
    assert Rows(*rows[:2]).padded(2).states is None
