"""Phases of states whose dwell times are not geometric: mean times, shares, and how long visits last."""

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.model.memory import unfold
from longhmm.posterior.diagnostics.dwell_times import exits
from model.transitions.dwelling import FREE, KINDS, MEAN, TIMES, lasting, model, params


def test_mean_dwell_times_and_shares_of_time():
    one, at = model("negative-binomial", 60), params("negative-binomial")
    matrix = one.validate(at)["transition"]
    np.testing.assert_allclose(1 / (1 - np.diag(matrix)), MEAN, rtol=1e-3)
    _, _, wide = unfold(one, one.validate(at))
    far = np.linalg.matrix_power(wide["transition"], 1 << 14)[0].reshape(3, 60).sum(axis=1)
    np.testing.assert_allclose(np.linalg.matrix_power(matrix, 1 << 14)[0], far, rtol=1e-8)


def test_mean_dwell_times_of_phases_that_repeat_themselves():
    chances = lasting("phase-type", 1000)
    matrix = model("phase-type").validate(params("phase-type"))["transition"]
    np.testing.assert_allclose(1 / (1 - np.diag(matrix)), chances @ np.arange(1, 1001), rtol=1e-12)
    assert matrix[0, 0] < 1 - 1 / TIMES[0].sum()  # some visits end early


@KINDS
def test_how_long_visits_last(kind):
    one = model(kind).transitions
    lengths = np.array([0, 1, 2, 3, 7])
    chances = lasting(kind, 8)
    expected = 1.0 - np.concatenate([np.zeros((3, 1)), np.cumsum(chances, axis=1)], axis=1)[:, lengths]
    found = one.survival({"durations": params(kind)["durations"][None]}, lengths)
    np.testing.assert_allclose(found[0], expected, rtol=1e-8)


def test_chances_to_leave_follow_the_age():
    one, at = model("free", fresh=True), params("free")
    path = np.array([0, 0, 0, 0, 2, 2, 1, 1, 1, 0])
    data = open_data(np.zeros(len(path)))
    found = exits(one, one.validate(at), path, data, np.ones(len(path), bool))
    np.testing.assert_allclose(found.chance, FREE[found.level, np.minimum(found.age, 3) - 1], rtol=1e-9)
