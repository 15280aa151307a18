"""A small look at data: missing values, spreads, categories."""

import numpy as np
import pytest

from longhmm.errors import DataError
from longhmm.model.summary import summarise

pytestmark = pytest.mark.usefixtures("double_precision")


def test_quantiles_are_those_of_sorted_values_and_summaries_are_told_apart() -> None:
    """By their values: data of the same mean, spread and ends may have other quantiles."""
    values = np.random.default_rng(0).gamma(2.0, size=(333, 2))
    values[7, 1] = np.nan
    summary = summarise(values)
    expected = [np.quantile(column[~np.isnan(column)], np.linspace(0, 1, 101)) for column in values.T]
    np.testing.assert_allclose(summary.quantiles, expected, rtol=1e-13)
    np.testing.assert_array_equal(summary.ends, summary.quantiles[:, [0, -1]])
    np.testing.assert_array_equal(summary.of(slice(1, 2)).quantiles, summary.quantiles[1:])
    assert summary == summarise(values.copy()) and hash(summary) == hash(summarise(values.copy()))
    one, other = (summarise(np.array([-1.0, 8.0, *middle])) for middle in ((0, 3, 5, 6), (1, 2, 4, 7)))
    np.testing.assert_allclose(
        [one.mean, one.sd, one.ends[0, 1:]], [other.mean, other.sd, other.ends[0, 1:]], rtol=1e-15
    )
    assert one != other and one != 1.0


def test_summary_looks_past_missing_values() -> None:
    table = np.array([[1.0, 5.0], [np.nan, 5.0], [3.0, np.nan], [2.0, 5.0]])
    summary = summarise(table)
    np.testing.assert_allclose(summary.mean, [2.0, 5.0])
    np.testing.assert_allclose(summary.sd, [np.std([1.0, 2.0, 3.0]), 0.5])
    np.testing.assert_array_equal(summary.quantiles[:, 50], [2.0, 5.0])
    assert summary.n_categories == 6 and summary.quantiles.shape == (2, 101)
    assert np.all(summary.spread > 0)
    assert summarise(np.array([0.5, 1.0])).n_categories is None
    with pytest.raises(DataError, match="Feature 1 has no observed value"):
        summarise(np.array([[1.0, np.nan]]))
