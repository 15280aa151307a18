"""That shapes are checked while tests run, and that a wrong one is caught."""

import numpy as np
import pytest

import longhmm as lh
import shapes
from longhmm.data.rows import Rows

MODEL = lh.HMM(2, lh.Poisson())
PARAMS = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "rate": np.array([1.0, 8.0])}


def test_every_joint_is_checked_and_says_what_it_takes_or_gives():
    for holder, name, function in shapes.joints():
        assert hasattr(function, "__wrapped__"), (holder, name)


def test_right_shapes_pass():
    assert lh.decode(MODEL, PARAMS, [0, 1, 9]).shape == (3,)
    rows = Rows(np.zeros((3, 1)), np.ones((3, 1), bool))
    assert MODEL.log_likelihoods(PARAMS, rows).shape == (3, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        Rows(np.zeros((3, 1)), np.ones((2, 1), bool)),  # of other rows
        Rows(np.zeros((3, 1)), np.ones((3, 2), bool)),  # of other features
        Rows(np.zeros((3, 1)), np.ones((3, 1))),  # of another type
        Rows(np.zeros((3, 1)), np.ones((3, 1), bool), states=np.zeros((3, 1), int)),
        Rows(np.zeros((3, 1)), np.ones((3, 1), bool), lags=np.zeros((3, 2))),
    ],
)
def test_rows_that_do_not_fit_together_are_caught(wrong):
    with pytest.raises(TypeError, match=r"rows of HMM.log_likelihoods\.\w+ must be"):
        MODEL.log_likelihoods(PARAMS, wrong)


def test_log_likelihoods_of_other_rows_are_caught():
    class Short(lh.Poisson):
        def log_likelihoods(self, params, rows):
            return super().log_likelihoods(params, rows)[1:]

    with pytest.raises(TypeError, match=r"what HMM\.log_likelihoods returns must be"):
        lh.HMM(2, Short()).log_likelihoods(PARAMS, Rows(np.zeros((3, 1)), np.ones((3, 1), bool)))
