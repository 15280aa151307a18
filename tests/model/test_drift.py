"""The baseline itself: SciPy's cubic splines, and the prior of its steps."""

import jax
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.model.drift import Drift, FromSteps, RandomWalk
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
