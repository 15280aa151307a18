"""The baseline itself: SciPy's cubic splines, and the prior of its steps."""

import jax
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.model.drift import Drift, FromSteps, RandomWalk, Returning, prior, shares
from model.baselines import baseline, wandering


def test_a_baseline_is_a_cubic_spline_of_mean_zero_that_stays_where_it_ends() -> None:
    coefficients, drift = wandering(6), lh.Drift(6, rows=600)
    rows = np.arange(0.0, 800)
    with jax.enable_x64(True):
        found = np.asarray(drift.at(coefficients, rows[:, None]))
    np.testing.assert_allclose(found, baseline(coefficients, 600, rows), atol=1e-12)
    np.testing.assert_allclose(drift.coefficients(found[:601] + 5.0), coefficients, atol=1e-9)
    assert abs(np.trapezoid(found[:601]) / 600) < 1e-4 * found.std() and np.ptp(found[600:]) == 0


def test_steps_of_a_drawn_baseline_are_those_of_its_density() -> None:
    with jax.enable_x64(True):
        prior = RandomWalk(Drift(5, scale=0.3))
        drawn = prior.sample(jax.random.key(0), (4000,))
        steps = np.diff(drawn, axis=-1)
        expected = stats.multivariate_t.logpdf(steps[:20], shape=0.09 * np.eye(7), df=1)
        np.testing.assert_allclose(prior.log_prob(drawn[:20]), expected, rtol=1e-9)
        assert np.all(prior.support(drawn))
        # Every single step has a Cauchy distribution; the volume of the map to coordinates, by differences.
        assert stats.kstest(steps[:, 2], stats.cauchy(scale=0.3).cdf).pvalue > 0.001
        way = FromSteps(Drift(5, scale=0.3))
        u = way.inv(drawn[0])
        jacobian = jax.jacobian(lambda at: jax.numpy.diff(way(at)))(u)
        assert way.log_abs_det_jacobian(u, drawn[0]) == pytest.approx(np.linalg.slogdet(jacobian)[1], rel=1e-9)


def test_a_baseline_that_returns_is_independent_noise_less_its_mean() -> None:
    """Independent normal coefficients, conditional on a mean over time of 0, by the formulas for normal vectors; the
    density of their steps by SciPy."""
    drift = Drift(5, scale=0.3, returns=True)
    mean_of = shares(5)
    covariance = 0.09 * (np.eye(8) - np.outer(mean_of, mean_of) / (mean_of @ mean_of))
    steps_of = np.diff(np.eye(8), axis=0)
    with jax.enable_x64(True):
        own = prior(drift)
        assert isinstance(own, Returning) and isinstance(prior(Drift(5, scale=0.3)), RandomWalk)
        drawn = own.sample(jax.random.key(0), (20_000,))
        assert np.all(own.support(drawn))
        steps = np.diff(drawn[:20], axis=-1)
        expected = stats.multivariate_normal.logpdf(steps, cov=steps_of @ covariance @ steps_of.T)
        np.testing.assert_allclose(own.log_prob(drawn[:20]), expected, rtol=1e-9)
    # Standard errors of entries of a sample covariance are at most sqrt(2 / 20,000) of the variance.
    np.testing.assert_allclose(np.cov(np.asarray(drawn).T), covariance, atol=5 * 0.09 * np.sqrt(2 / 20_000))


def test_a_baseline_that_returns_is_stored_and_needs_a_scale() -> None:
    drift = Drift(5, scale=0.3, rows=50, returns=True)
    again = Drift.given(drift.options())
    assert repr(again) == repr(drift) == "Drift(knots=5, scale=0.3, returns=True)"
    assert again.returns and not Drift.given({**drift.options(), "returns": False}).returns
    for wrong in ({}, {"scale": 0.3, "gain": True}):
        with pytest.raises(ModelError, match="returns needs a scale"):
            Drift(5, returns=True, **wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_slow_noise_that_returns_has_the_posterior_of_a_linear_model() -> None:
    """Many intervals, of which each knows little: the mode is no spike, chains agree, and the baseline is that of a
    linear regression with normal coefficients."""
    rng, rows, knots = np.random.default_rng(0), 3000, 40
    terms = np.stack([baseline(each, rows, np.arange(rows)) for each in np.eye(knots + 3)], axis=1)
    y = terms @ (0.2 * rng.normal(size=knots + 3)) + rng.normal(size=rows)
    found = lh.sample(lh.HMM(1, lh.Gaussian(drift=Drift(knots, scale=0.2, returns=True))), y, seed=0, progress=False)
    sd = float(np.mean(found.draws["sd"]))
    # A level that may be anything, and coefficients whose mean over time is 0: contrasts that have it.
    away = np.linalg.svd(shares(knots)[None])[2][1:].T
    design = np.column_stack([np.ones(rows), terms @ away])
    precision = design.T @ design / sd**2 + np.diag([0.0, *[0.2**-2] * (knots + 2)])
    mean, covariance = np.linalg.solve(precision, design.T @ y / sd**2), np.linalg.inv(precision)
    drawn = np.asarray(found.draws["drift"])
    spread = np.sqrt(np.diag(away @ covariance[1:, 1:] @ away.T))
    # 4000 draws, of which more than 2000 count: 0.02 standard deviations, and 1.6 % of them; the worst of 43.
    np.testing.assert_allclose(drawn.mean(axis=(0, 1)) / spread, away @ mean[1:] / spread, atol=0.1)
    np.testing.assert_allclose(drawn.std(axis=(0, 1)), spread, rtol=0.1)
    assert found.diagnose().kind == "chains agree, rest unchecked"
