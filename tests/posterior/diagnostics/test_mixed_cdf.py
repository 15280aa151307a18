"""Probabilities and quantiles from tables are those of rows evaluated one by one, in the kernel and without it."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import longhmm as lh
from longhmm.backends.mixed import Mixed
from longhmm.model.memory import unfold
from longhmm.posterior.diagnostics import mixed_cdf as module
from longhmm.posterior.diagnostics.cdf_tables import FEWEST, distribution_functions
from longhmm.posterior.diagnostics.mixed_cdf import EDGE, mixed_cdf, normal, row_by_row

LENGTH = FEWEST + 500
OFF = 2e-7  # of a quantile, as the tables promise


@pytest.fixture(autouse=True)
def in_pass(monkeypatch):
    """Also few rows are mixed while the kernel filters."""
    monkeypatch.setattr(module, "FEWEST_IN_PASS", 0)


def parameters(n, name):
    level, wide = np.linspace(-2.0, 2.0, n), np.linspace(0.3, 1.0, n)
    chosen = {
        "gaussian": (lh.Gaussian(), {"mean": level, "sd": wide}),
        "plane": (
            lh.Gaussian(2),
            {"mean": np.stack([level, -3 * level], 1), "covariance": np.tile(np.eye(2), (n, 1, 1))},
        ),
        "student-t": (lh.StudentT(), {"df": 3 + wide, "loc": level, "scale": wide}),
        "gamma": (lh.Gamma(), {"concentration": 4 * wide, "rate": wide}),
        "mixture": (
            lh.GaussianMixture(2),
            {"weights": np.full((n, 2), 0.5), "means": level[:, None] + [0, 2.0], "scales": np.tile(wide, (2, 1)).T},
        ),
        "poisson": (lh.Poisson(), {"rate": 9 * wide}),
        "counts": (lh.Poisson(2), {"rate": np.stack([9 * wide, 4 * wide[::-1]], 1)}),
    }
    emission, params = chosen[name]
    return lh.HMM(n, emission), {"transition": 0.8 * np.eye(n) + 0.2 / n, **params}


def problem(n, name):
    """A model, its parameters, three sequences with missing values, and a path."""
    model, params = parameters(n, name)
    states, values = lh.simulate(model, params, LENGTH, seed=2)
    values = np.asarray(values, np.float64).reshape(LENGTH, -1)
    values[[0, 50, 51, 9000]] = np.nan
    values[70, -1] = np.nan
    data = lh.open_data([values[:40], values[40:9001], values[9001:]])
    _, model, complete = unfold(resolved := model.resolve(data), resolved.validate(params))
    return model, complete, data, np.asarray(states)


CASES = [(2, "gaussian"), (3, "plane"), (2, "student-t"), (3, "gamma"), (5, "mixture"), (2, "poisson"), (8, "counts")]


@pytest.mark.parametrize("way", ["pass", "blocks", "host"])
@pytest.mark.parametrize(("n", "name"), [*CASES, (11, "gaussian"), (1, "gaussian")])
def test_rows_are_those_evaluated_one_by_one(n, name, way, monkeypatch):
    """As the kernel filters, from predictions of a pass that ran elsewhere, and without the kernel."""
    model, params, data, path = problem(n, name)
    exact = distribution_functions(model, params, data)
    if way != "pass":
        monkeypatch.setattr(module, "hand_over", lambda *given: False)
    if way == "host":
        monkeypatch.setattr(Mixed, "add", Mixed._on_host)
    found = mixed_cdf(model, params, data, exact, 3, path)
    expected = row_by_row(model, params, data, exact, 3, path)
    missing = ~np.isfinite(expected.quantiles)
    assert missing.sum() == 4 * data.dim + 1
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, other, rtol=0, atol=OFF)
    below = [ndtr(each.quantiles[~missing]) for each in (found, expected)]
    np.testing.assert_allclose(*below, rtol=0, atol=2e-11)


def test_the_tails_are_evaluated_one_by_one():
    """Far out, where the error of a table would be the whole probability."""
    model, params, data, _ = problem(2, "gaussian")
    values = np.concatenate([each.values for _, each in data.blocks(LENGTH)])
    values[200:206, 0] = [-4.0, 9.0, -3.9, 7.0, 8.5, 60.0]
    values[206:2206, 0] = np.linspace(-4.0, -3.8, 2000)  # so many that tables have intervals there
    data = lh.open_data(values)
    exact = distribution_functions(model, params, data)
    found, expected = mixed_cdf(model, params, data, exact, 0), row_by_row(model, params, data, exact, 0, None)
    seen = np.isfinite(expected.quantiles)
    np.testing.assert_array_equal(np.isfinite(found.quantiles), seen)
    own, true = found.quantiles[seen], expected.quantiles[seen]
    # Near 1 a last digit of a probability moves its quantile: at 7 by 1e-5.
    digits = 4 * np.finfo(float).eps * np.sqrt(2 * np.pi) * np.exp(0.5 * np.clip(true, 0, 8) ** 2)
    assert np.all(np.abs(own - true) <= OFF + digits)
    far = [ndtr(each.quantiles[:, 200:2206]) for each in (found, expected)]
    np.testing.assert_allclose(*far, rtol=1e-12)
    assert np.isnan(found.given).all()


def compared(model, params, values):
    data = lh.open_data(values)
    model = model.resolve(data)
    params = model.validate(params)
    exact = distribution_functions(model, params, data)
    found, expected = mixed_cdf(model, params, data, exact, 0), row_by_row(model, params, data, exact, 0, None)
    assert np.isfinite(found.quantiles).all()
    np.testing.assert_allclose(found.quantiles, expected.quantiles, rtol=0, atol=OFF)


def test_a_chain_that_hardly_forgets():
    """Chunks disagree whatever their overlap: blocks are run again, and messages propagated."""
    params = {"transition": [[1 - 1e-6, 1e-6], [1e-6, 1 - 1e-6]], "mean": [0.0, 1e-3], "sd": [1.0, 1.0]}
    values = np.random.default_rng(0).normal(size=4 * LENGTH)
    values[::1000] *= 6  # that no table tells
    compared(lh.HMM(2, lh.Gaussian()), params, values)


def test_a_state_that_was_nearly_ruled_out():
    """Plain numbers have lost the state that the rest of the rows speaks for: the window is done again in log space."""
    params = {"transition": np.eye(2), "initial": [0.5, 0.5], "rate": [1.0, 200.0]}
    values = np.random.default_rng(0).poisson(np.repeat([1.0, 200.0], [5, 2000]))
    compared(lh.HMM(2, lh.Poisson(), transition_prior=np.eye(2)), params, values)


def test_a_chain_whose_matrix_varies_has_no_tables():
    model = lh.HMM(2, lh.Gaussian(), transitions=lh.Logit(1))
    values = np.random.default_rng(0).normal(size=40)
    data = lh.open_data(values, covariates=values[:, None])
    assert mixed_cdf(model.resolve(data), {}, data, list, 0) is None


@pytest.mark.parametrize("form", ["masked", "single", "whole"])
def test_values_are_read_as_they_are_stored(form):
    """Numbers of single precision, whole numbers, and those that a mask hides, even infinite ones."""
    model, params = parameters(2, "poisson" if form == "whole" else "gaussian")
    values = np.asarray(lh.simulate(model, params, LENGTH, seed=2)[1])
    values = values.astype(np.int64 if form == "whole" else np.float32)
    hidden = np.arange(LENGTH) % 100 == 7
    if form == "masked":
        values[7] = np.inf
    data = lh.open_data(values, mask=None if form == "single" else hidden)
    _, model, params = unfold(resolved := model.resolve(data), resolved.validate(params))
    exact = distribution_functions(model, params, data)
    found, expected = mixed_cdf(model, params, data, exact, 0), row_by_row(model, params, data, exact, 0, None)
    assert np.isnan(found.quantiles).sum() == (0 if form == "single" else hidden.sum())
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, other, rtol=0, atol=OFF)


@pytest.mark.parametrize(("length", "handed"), [(FEWEST, 0), (FEWEST + 1, 1)])
def test_few_rows_need_no_program_of_their_own(length, handed, monkeypatch):
    asked, hand_over = [], module.hand_over
    monkeypatch.setattr(module, "FEWEST_IN_PASS", FEWEST + 1)
    monkeypatch.setattr(module, "hand_over", lambda *given: asked.append(given) or hand_over(*given))
    model, params = parameters(2, "gaussian")
    compared(model, params, np.asarray(lh.simulate(model, params, length, seed=2)[1]))
    assert len(asked) == handed


def test_quantiles_stay_finite():
    found = normal([np.array([0.0, 0.2, 1.0]), np.array([0.0, 0.4, 1.0])], np.full(3, 0.5))
    np.testing.assert_allclose(found, ndtri([EDGE, 0.3, 1 - EDGE]))
