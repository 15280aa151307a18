"""Updates in closed form: Gamma and Dirichlet posteriors of rows, and the roots of inverse gamma variances."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm as lh
from longhmm.model.conjugate import RootInverseGamma, draw_dirichlet, expected_log_shares

pytestmark = pytest.mark.usefixtures("double_precision")


def test_counts_have_a_gamma_posterior():
    rate = lh.Poisson(rate=dist.Gamma(2.0, 0.5)).conjugate(2, None)
    values, observed = np.array([[3.0], [0.0], [7.0], [5.0]]), np.array([[True], [True], [True], [False]])
    weights = np.array([[1.0, 0.0], [0.25, 0.75], [0.0, 1.0], [1.0, 0.0]])
    q = rate.update(None, rate.statistics(jnp.asarray(values), jnp.asarray(observed), jnp.asarray(weights)))
    shape, inverse_scale = np.array([2.0 + 3.0, 2.0 + 7.0]), np.array([0.5 + 1.25, 0.5 + 1.75])
    np.testing.assert_allclose(rate.mean(q)["rate"], shape / inverse_scale, rtol=1e-12)
    drawn = np.asarray(jax.vmap(lambda key: rate.draw(key, q)["rate"])(jax.random.split(jax.random.key(0), 4000)))
    for level in range(2):
        law = stats.gamma(shape[level], scale=1 / inverse_scale[level])
        assert stats.kstest(drawn[:, level], law.cdf).pvalue > 1e-3
    # E log p(y | level) under q, by draws of the rate; a row that is not observed says nothing.
    expected = stats.poisson.logpmf(values[:3, None, 0], drawn[:, None, :]).mean(axis=0)
    found = rate.expected(q, jnp.asarray(values), jnp.asarray(observed))
    np.testing.assert_allclose(found[:3], expected, atol=0.05)
    np.testing.assert_array_equal(found[3], 0.0)


def test_other_priors_are_not_conjugate():
    assert lh.Poisson(rate=dist.LogNormal(0.0, 1.0)).conjugate(2, None) is None


def test_shares_of_tiny_and_forbidden_concentrations():
    allowed = np.array([True, False, True])
    drawn = np.asarray(draw_dirichlet(jax.random.key(0), jnp.asarray([[1e-4, 1.0, 1e-4]] * 500), allowed))
    np.testing.assert_allclose(drawn.sum(axis=-1), 1.0, rtol=1e-12)
    assert np.all(drawn[:, 1] == 0.0) and np.all(drawn[:, [0, 2]] > 0.0)
    many = np.asarray(draw_dirichlet(jax.random.key(1), jnp.asarray([[2.0, 3.0, 1.0]] * 20_000)))
    np.testing.assert_allclose(expected_log_shares(jnp.asarray([2.0, 3.0, 1.0])), np.log(many).mean(axis=0), atol=0.03)


def test_the_square_of_a_standard_deviation_is_inverse_gamma():
    prior, sd = RootInverseGamma(1.5, 0.7), np.array([0.1, 0.9, 4.0])
    expected = stats.invgamma(1.5, scale=0.7).logpdf(sd**2) + np.log(2 * sd)
    np.testing.assert_allclose(prior.log_prob(sd), expected, rtol=1e-12)
    assert np.isfinite(prior.log_prob(1e-150)) or prior.log_prob(1e-150) == -np.inf
