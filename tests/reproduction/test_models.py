"""The published models, against the matrices as they are printed (columns sum to one)."""

import numpy as np
import pytest

from longhmm_reproduction import models

DD_AS_PRINTED = """
.999 .001 0 0 0 0 0 0
0 .999 .001 0 0 0 0 0
0 0 .999 .001 0 0 0 0
0 0 0 .999 .001 0 0 0
0 0 0 0 .999 .001 0 0
0 0 0 0 0 .999 .001 0
0 0 0 0 0 0 .999 .001
.001 0 0 0 0 0 0 .999
"""
RC_AS_PRINTED = """
.01 0 .85 0 0 0 0 1
.99 .01 0 0 0 0 0 0
0 .99 0 0 0 0 0 0
0 0 .15 0 0 0 0 0
0 0 0 1 .01 0 .85 0
0 0 0 0 .99 .01 0 0
0 0 0 0 0 .99 0 0
0 0 0 0 0 0 .15 0
"""


@pytest.mark.parametrize(
    ("make", "printed", "variance"),
    [(models.dd, DD_AS_PRINTED, 1.0), (models.rc, RC_AS_PRINTED, 20.0), (models.rc_hard, RC_AS_PRINTED, 400.0)],
)
def test_transitions_are_the_transposes_of_what_is_printed(make, printed, variance):
    model, params = make()
    columns = np.array([line.split() for line in printed.split("\n") if line], float)
    np.testing.assert_allclose(columns.sum(axis=0), 1.0)
    np.testing.assert_allclose(params["transition"], columns.T, atol=1e-15)
    np.testing.assert_array_equal(params["covariance"], np.tile(variance * np.eye(2), (8, 1, 1)))
    assert params["mean"].shape == (8, 2)
    model.validate(params)


def test_look_alikes_of_the_cycles_lie_as_far_apart_as_they_should():
    mean = models.rc()[1]["mean"]
    for one, other, distance in ((1, 6, 15.0), (2, 5, np.hypot(10, 10)), (3, 7, np.hypot(10, 10))):
        assert np.linalg.norm(mean[one - 1] - mean[other - 1]) == pytest.approx(distance)


def test_lognormal_states_alternate():
    model, params = models.lognormal()
    complete = model.validate(params)
    np.testing.assert_array_equal(complete["transition"], [[0.1, 0.9], [0.9, 0.1]])
    np.testing.assert_array_equal(complete["loc"], [0.0, 4.0])
    np.testing.assert_array_equal(complete["scale"], [2.0, 2.0])
