"""Quantiles of pseudo-residuals."""

import numpy as np
import pytest

from longhmm.data.sequences import open_data
from longhmm.posterior.diagnostics.residuals import quantiles, residuals
from posterior.fakes import known_states


@pytest.fixture(scope="module")
def known():
    return known_states()


@pytest.fixture(scope="module")
def posterior(known):
    return known.posterior()


def test_residual_quantiles_lie_on_the_diagonal_for_the_right_model_only(known, posterior):
    values = np.asarray(known.sequences.rows(0, known.sequences.length).values)
    inside = []
    for data in (values, 2.0 * values):
        expected, found, (lower, upper) = quantiles(residuals(posterior.model, posterior.centre, open_data(data)))
        inside.append(np.mean((found >= lower) & (found <= upper)))
        assert (np.diff(expected) > 0).all()
    assert inside[0] > 0.8 and inside[1] < 0.5
