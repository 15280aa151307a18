"""A small look at data: missing values, spreads, categories."""

import numpy as np
import pytest

from longhmm.errors import DataError
from longhmm.model.summary import summarise

pytestmark = pytest.mark.usefixtures("double_precision")


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
