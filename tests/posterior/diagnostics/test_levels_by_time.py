"""Levels, spreads and transitions by time and by sequence: silent where the model is right, plain where it is not."""

import re

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics import drawn_path, levels_by_time, observations
from longhmm.posterior.diagnostics.drawn_path import DrawnPath, excerpts
from longhmm.posterior.diagnostics.levels_by_time import by_time, judge_by_time, log_densities
from longhmm.posterior.diagnostics.observations import residuals
from longhmm.posterior.diagnostics.transitions_by_time import transitions_by_time
from posterior.diagnostics.judged_by_time import judged
from posterior.fakes import gaussian_model

MODEL = gaussian_model()
MOVES = {"transition": np.array([[0.95, 0.05], [0.1, 0.9]])}
PARAMS = {**MOVES, "mean": np.array([0.0, 4.0])}
N = 12_000


def values(seed=0, length=N, transition=None):
    params = PARAMS if transition is None else {**PARAMS, "transition": transition}
    return simulate(MODEL, params, length, seed=seed)[1][:, 0].astype(float)


RIGHT = {
    "Gaussian": (MODEL, PARAMS, 4000),
    "overlapping": (MODEL, {**PARAMS, "mean": np.array([0.0, 1.0])}, 4000),
    "sequences": (MODEL, PARAMS, [900, 30, 1500, 700, 5, 1200]),
    "counts": (lh.HMM(2, lh.Poisson(rate=dist.Gamma(1.0, 1.0))), {**MOVES, "rate": np.array([1.0, 6.0])}, 4000),
    "angles": (
        lh.HMM(2, lh.VonMises(loc=dist.Uniform(-3, 3), concentration=dist.Gamma(1.0, 1.0))),
        {**MOVES, "loc": np.array([-1.0, 2.0]), "concentration": np.array([2.0, 5.0])},
        4000,
    ),
}


@pytest.mark.parametrize(
    "name", [each if each == "overlapping" else pytest.param(each, marks=pytest.mark.slow) for each in RIGHT]
)
def test_right_models_are_called_wrong_at_the_stated_rate(name):
    """P-values of levels, spreads (or scores) and transitions, the smaller of two doubled, are seldom small."""
    model, params, length = RIGHT[name]
    levels, transitions = [], []
    for seed in range(15):
        sequences = open_data(simulate(model, params, length, seed=seed)[1])
        path = DrawnPath(model, params, sequences, seed=seed)
        left = residuals(model, params, sequences, path=path, seed=seed)
        looks = [log_densities(path)] if left is None else [left.given_state, left.given_state**2]
        levels += [each.found.p_value for look in looks for each in by_time(path, look, 20)]
        transitions += [each.found.p_value for each in transitions_by_time(path)]
    for found in (levels, transitions):
        assert len(found) >= 30 and min(found) > 1e-4
        assert stats.binomtest(sum(each < 0.1 for each in found), len(found), 0.1, alternative="greater").pvalue > 1e-3


def test_a_drift_is_seen_and_named():
    reasons, moves, details = judged(values() + np.linspace(-0.4, 0.4, N))
    assert len(reasons) == 1 and re.search(r"observations in state [01] drift by \+0\.[6789]", reasons[0])
    assert "try lh.Gaussian(drift=lh.Drift(20)), on the command line --drift 20" in reasons[0] and moves == []
    assert details["drift"] == pytest.approx(0.8 / np.sqrt(12), rel=0.3) and details["drift_p_value"] < 1e-6
    assert details["drift_of"].endswith("by time")


def test_a_jump_is_seen_with_its_place():
    reasons, _, _ = judged(values() + 0.5 * (np.arange(N) >= 4000))
    (reason,) = reasons
    assert "jump by +0." in reason and "one level for all" in reason
    place = int(reason.partition("about row ")[2].split(", ")[0].replace(",", ""))
    assert place == pytest.approx(4000, abs=400)


def test_a_baseline_that_wanders_is_seen():
    (reason,), _, _ = judged(values() + 0.5 * np.sin(np.arange(N) / N * 4 * np.pi))
    assert "wander" in reason and "--drift 20" in reason


def test_sequences_with_levels_of_their_own_are_seen():
    offset = 0.3 * np.random.default_rng(1).normal(size=20)
    offset[7] = 1.2
    reasons, moves, details = judged(values() + np.repeat(offset, N // 20), lengths=[N // 20] * 20)
    assert len(reasons) == 1 and "from sequence to sequence" in reasons[0] and "sequence 7 by +" in reasons[0]
    assert moves == [] and details["drift_of"].endswith("by sequence")


def test_sequences_that_differ_by_little_count_where_intervals_are_too_narrow():
    """Offsets of 0.08 sd between twenty sequences of 600 rows: the mean of 8,000 rows of a state, 0.011 sd, is off by
    0.018 sd; between tenths of the time as much would not count."""
    offset = np.random.default_rng(1).normal(size=20)
    offset = 0.08 * (offset - offset.mean()) / offset.std()
    (reason,), _, details = judged(values(4) + np.repeat(offset, N // 20), lengths=[N // 20] * 20)
    assert 0.05 < details["drift"] < 0.1 and details["drift_of"] == "state 0 by sequence"
    stretch = float(re.search(r"interval of its level should be about ([0-9.]+) times as wide", reason)[1])
    assert stretch == pytest.approx(np.sqrt(1 + 8000 / 20 * 0.08**2), rel=0.2)


def test_noise_that_grows_is_seen():
    states, y = simulate(MODEL, PARAMS, N, seed=2)
    mean = PARAMS["mean"][states]
    grown = mean + (y[:, 0] - mean) * np.linspace(0.7, 1.3, N)
    (reason,), _, details = judged(grown)
    assert "spread differently in parts of the time: from 0." in reason and details["spread"] > 0.1


def test_without_a_distribution_function_scores_are_compared():
    model, params, _ = RIGHT["angles"]
    y = simulate(model, params, N, seed=0)[1][:, 0]
    wrong = np.where(np.arange(N) < 9000, y, np.random.default_rng(0).uniform(-np.pi, np.pi, N))
    (reason,), _, details = judged(wrong, model, params)
    assert "less probable after " in reason and details["score"] > 0.1
    assert "drift" not in details


def test_missing_values_are_left_out():
    y = values() + np.linspace(-0.4, 0.4, N)
    y[::3] = np.nan
    (reason,), _, _ = judged(y)
    assert "drift" in reason


def test_a_part_of_long_data_shows_the_same(monkeypatch):
    monkeypatch.setattr(drawn_path, "MOST_ROWS", 9000)
    for module in (observations, levels_by_time):
        monkeypatch.setattr(module, "MOST_ROWS", 6000)
    y, small = values(length=30_000) + np.linspace(-1, 1, 30_000), excerpts(open_data(np.zeros(30_000)), 6000).position
    assert np.isin(small, excerpts(open_data(np.zeros(30_000)), 9000).position).all()
    sequences = open_data(y)
    path = DrawnPath(MODEL, PARAMS, sequences)
    left = residuals(MODEL, PARAMS, sequences, path=path, most=6000)
    own = np.isfinite(left.given_state[:, 0])
    np.testing.assert_allclose(left.given_state[own, 0], y[small[own]] - PARAMS["mean"][path.at(small[own])], atol=1e-6)
    (reason,) = judge_by_time(path, left.given_state, {})
    assert "drift" in reason and path.whole.length == 30_000


@pytest.mark.slow
def test_states_are_remembered_where_noise_is_coloured():
    model = lh.HMM(2, lh.Gaussian(noise=lh.MANoise(1)))
    params = {**PARAMS, "sd": np.ones(2), "theta": np.array([0.6])}
    y = simulate(model, params, N, seed=3)[1]
    sequences = open_data(y)
    model = model.resolve(sequences)
    path = DrawnPath(model, params, sequences)
    given = residuals(model, params, sequences, path=path).given_state
    assert stats.kstest(given[:, 0], "norm").pvalue > 1e-3 and judge_by_time(path, given, {}) == []


def test_files_and_many_short_sequences_are_judged_alike(tmp_path):
    y = values(3, 6000).astype(np.float32)
    np.save(tmp_path / "y.npy", y)
    assert judged(str(tmp_path / "y.npy"))[2] == judged(y)[2]
    levels, moves, details = judged(y, lengths=[12] * 500)
    assert levels == moves == [] and details["drift_p_value"] > 1e-4
