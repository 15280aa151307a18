"""Parameters that follow covariates: coordinates of their coefficients, and the prior that these have."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints
from scipy import stats

from longhmm.model.regression import Coefficients, Regression, as_regression, has_link
from longhmm.model.terms import Terms

pytestmark = pytest.mark.usefixtures("double_precision")
SEEN = np.random.default_rng(0).normal([3.0, -1.0], [2.0, 0.5], (200, 2))
LINEAR = Terms.among(("a", "b"), ("a", "b"), SEEN)
VALUES = np.array([0.7, -0.4, 1.5])  # intercept, and a slope of each column


def test_what_is_a_regression():
    assert as_regression("~ a + b").text == "~ a + b"
    given = Regression("~ a")
    assert as_regression(given) is given
    assert as_regression("a + b") is None and as_regression(3.0) is None and as_regression(dist.Normal()) is None
    assert has_link(constraints.positive) and not has_link(constraints.real)


def test_coordinates_are_standard_coefficients():
    way = biject_to(Coefficients(LINEAR))
    mean, spread = SEEN.mean(axis=0), SEEN.std(axis=0)
    standard = way.inv(VALUES)
    np.testing.assert_allclose(standard[1:], VALUES[1:] * spread, rtol=1e-9)
    np.testing.assert_allclose(standard[0], VALUES[0] + VALUES[1:] @ mean, rtol=1e-9)
    np.testing.assert_allclose(way(standard), VALUES, rtol=1e-12)
    volume = np.linalg.slogdet(jax.jacobian(way)(standard))[1]
    assert way.log_abs_det_jacobian(standard, VALUES) == pytest.approx(volume, rel=1e-12)


def test_the_parameter_at_the_means_has_its_own_prior():
    regression = Regression("~ a + b", slope=dist.Normal(0.0, 0.3))
    regression.linear = LINEAR
    prior = regression.prior(dist.Gamma(2.0, 1.0), constraints.positive)
    middle, slopes = VALUES[0] + VALUES[1:] @ SEEN.mean(axis=0), VALUES[1:] * SEEN.std(axis=0)
    expected = stats.gamma(2.0).logpdf(np.exp(middle)) + middle + stats.norm(0.0, 0.3).logpdf(slopes).sum()
    expected += np.log(SEEN.std(axis=0)).sum()
    assert float(prior.log_prob(jnp.asarray(VALUES))) == pytest.approx(expected, rel=1e-10)
    drawn = np.asarray(prior.sample(jax.random.key(0), (4000,)))
    assert stats.kstest(np.exp(drawn[:, 0] + drawn[:, 1:] @ SEEN.mean(axis=0)), stats.gamma(2.0).cdf).pvalue > 1e-3
    assert stats.kstest(drawn[:, 1] * SEEN[:, 0].std(), stats.norm(0.0, 0.3).cdf).pvalue > 1e-3
