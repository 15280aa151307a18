"""Shapes of observations in each state: silent where they are the model's, plain where they are not."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.posterior.diagnostics import shapes
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.observations import residuals
from longhmm.posterior.diagnostics.shapes import (
    judge_cut_off,
    judge_shapes,
    kurtosis_p_value,
    moments,
    skewness_p_value,
)
from posterior.fakes import gaussian_model

MODEL = gaussian_model()
PARAMS = {"transition": np.array([[0.95, 0.05], [0.1, 0.9]]), "mean": np.array([0.0, 5.0])}
N = 8000


def drawn(y, model=MODEL, params=PARAMS):
    data = open_data(y)
    path = DrawnPath(model, params, data)
    return path, residuals(model, params, data, path=path)


def noisy(noise, seed=0):
    return PARAMS["mean"][lh.simulate(MODEL, PARAMS, len(noise), seed=seed)[0]] + noise


def test_right_models_are_called_wrong_at_the_stated_rate():
    """Also where states overlap, and the path is mostly made up."""
    overlapping, p_values = {**PARAMS, "mean": np.array([0.0, 1.0])}, []
    for seed in range(30):
        found = drawn(lh.simulate(MODEL, overlapping, 3000, seed=seed)[1], params=overlapping)
        assert judge_shapes(*found, {}) == [] == judge_cut_off(found[0])
        p_values += [each.p_value for each in moments(*found)]
    assert len(p_values) == 120 and stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_heavy_tails_are_seen_where_few_values_lie_far_out():
    rng, details = np.random.default_rng(1), {}
    (reason,) = judge_shapes(*drawn(noisy(rng.standard_t(8, N) * np.sqrt(6 / 8))), details)
    assert "have heavier tails than the model's (kurtosis " in reason and "where it expects 3" in reason
    assert "lh.StudentT()" in reason and "times as wide" in reason and details["kurtosis"] > 0.42


def test_skewed_noise_is_seen():
    rng, details = np.random.default_rng(2), {}
    (reason,) = judge_shapes(*drawn(noisy((rng.gamma(30, size=N) - 30) / np.sqrt(30))), details)
    assert "are skewed (skewness +0." in reason and details["skewness"] == pytest.approx(2 / np.sqrt(30), abs=0.15)


def test_light_tails_are_seen():
    (reason,) = judge_shapes(*drawn(noisy(np.random.default_rng(3).uniform(-1.7, 1.7, N))), {})
    assert "lighter tails" in reason


def test_values_that_are_cut_off_are_seen():
    y = noisy(np.random.default_rng(4).normal(size=N))
    (reason,) = judge_cut_off(drawn(np.minimum(y, np.quantile(y, 0.99)))[0])
    assert reason.startswith("1 % of observations equal the largest value, ") and "cut off there" in reason
    (reason,) = judge_cut_off(drawn(np.maximum(y, -2.0))[0])
    assert "equal the smallest value, -2," in reason
    assert judge_cut_off(drawn(np.round(y, 2))[0]) == []  # as a converter rounds them
    counts = SimpleNamespace(model=lh.HMM(2, lh.Poisson()), whole=open_data(np.repeat([0, 1, 2], 50)))
    assert judge_cut_off(counts) == []


def test_small_states_and_families_without_a_function_are_not_judged(monkeypatch):
    monkeypatch.setattr(shapes, "FEWEST", N)
    path, left = drawn(noisy(np.random.default_rng(5).standard_t(3, N)))
    assert moments(path, left) == [] and judge_shapes(path, left, {}) == []
    assert judge_shapes(path, None, {}) == []


@pytest.mark.parametrize("n", [200, 5000])
@pytest.mark.parametrize("shape", [0.0, 0.3, -0.3])
def test_p_values_of_moments_are_those_of_the_published_tests(n, shape):
    """SciPy has both tests. Beside normal numbers, skewed ones with tails of their own."""
    normal = np.random.default_rng(n).normal(size=n)
    values = normal + shape * normal**2
    pairs = {
        stats.skewtest: skewness_p_value(stats.skew(values), n),
        stats.kurtosistest: kurtosis_p_value(stats.kurtosis(values), n),
    }
    for test, found in pairs.items():
        np.testing.assert_allclose(found, test(values).pvalue, rtol=1e-9, atol=1e-300)
