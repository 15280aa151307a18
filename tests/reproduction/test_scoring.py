"""Matching of states, and predictions, against computations that share nothing with them."""

import itertools

import numpy as np
import pytest

import longhmm as lh
from longhmm_reproduction import scoring


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_assignment_is_the_best_of_all_permutations(size):
    cost = np.random.default_rng(size).normal(size=(size, size))
    order = scoring.best_assignment(cost)
    best = min(cost[np.arange(size), list(each)].sum() for each in itertools.permutations(range(size)))
    assert sorted(order) == list(range(size))
    assert cost[np.arange(size), order].sum() == pytest.approx(best, abs=1e-12)


def test_renumbered_states_have_no_error():
    rng = np.random.default_rng(0)
    truth = {"transition": rng.dirichlet(np.ones(4), size=4), "mean": rng.normal(size=(4, 2))}
    order = np.array([2, 0, 3, 1])
    params = {"transition": truth["transition"][np.ix_(order, order)], "mean": truth["mean"][order]}
    assert scoring.transition_error(params, truth, "mean") == 0.0
    moved = {**params, "transition": np.roll(params["transition"], 1, axis=1)}
    assert scoring.transition_error(moved, truth, "mean") > 0.1


def test_predictions_ten_steps_ahead_agree_with_a_loop():
    model = lh.HMM(n_states=2, emission=lh.Gaussian(dim=1))
    params = {
        "transition": np.array([[0.9, 0.1], [0.3, 0.7]]),
        "mean": np.array([-1.0, 2.0]),
        "sd": np.sqrt([1.0, 0.5]),
    }
    _, values = lh.simulate(model, params, 2 * 70, seed=3)
    stretches = scoring.cut_stretches(values, 2, 70)
    transition, ahead = params["transition"], scoring.AHEAD
    law = np.linalg.matrix_power(transition, 500)[0]
    found = []
    for stretch in stretches[:, :, 0].astype(np.float64):
        sd = params["sd"]
        density = np.exp(-0.5 * ((stretch[:, None] - params["mean"]) / sd) ** 2) / sd / np.sqrt(2 * np.pi)
        alpha = law
        logs = []
        for time in range(70 - ahead):
            alpha = (alpha @ transition) * density[time]
            alpha = alpha / alpha.sum()
            logs.append(np.log(alpha @ np.linalg.matrix_power(transition, ahead) @ density[time + ahead]))
        found.append(logs[scoring.UNSEEN :])
    assert scoring.predictive_log_prob(model, params, stretches) == pytest.approx(np.mean(found), rel=1e-6)


def test_an_iid_analysis_reports_equal_rows():
    seen = scoring.as_independent({"transition": np.array([[0.8, 0.2], [0.4, 0.6]])})
    np.testing.assert_allclose(seen["transition"], [[0.6, 0.4], [0.6, 0.4]])


def test_means_come_with_standard_errors():
    found = scoring.with_errors({"a": [1.0, 3.0], "b": [2.0]})
    assert found == {"a": 2.0, "a_se": pytest.approx(1.0), "b": 2.0, "b_se": 0.0}
