"""Gaussian emissions: default priors of each kind of covariance, constants, and wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from longhmm import Gaussian
from longhmm.errors import ModelError
from longhmm.model.summary import summarise
from model.configurations import covariances
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_default_prior_of_a_full_gaussian_is_normal_and_inverse_wishart() -> None:
    data = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 10.0] + [5.0, 0.0]
    emission = Gaussian(2).resolve(summarise(data))
    mean, covariance = np.array([[4.0, 1.0], [6.0, -3.0]]), covariances(2, 2, 0)
    low, high = data.min(0), data.max(0)
    expected = stats.norm.logpdf(mean, (low + high) / 2, high - low).sum()
    expected += stats.invwishart(4, 0.1 * np.diag(data.var(0))).logpdf(covariance.transpose(1, 2, 0)).sum()
    answer = float(emission.log_prior({"mean": mean, "covariance": covariance}))
    assert answer == pytest.approx(expected, rel=1e-10)
    assert emission.resolve(summarise(data + 100)) is emission


def test_default_prior_of_a_spherical_gaussian_is_inverse_gamma() -> None:
    data = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 10.0]
    emission = Gaussian(2, "spherical", mean=0.0).resolve(summarise(data))
    rate = 0.05 * data.var(0).mean()
    expected = stats.invgamma.logpdf([0.5, 2.0], 1.5, scale=rate).sum()
    answer = emission.log_prior({"mean": np.zeros((2, 2)), "variance": np.array([0.5, 2.0])})
    assert float(answer) == pytest.approx(expected, rel=1e-10)


def test_the_prior_of_one_features_sd_is_that_of_its_variance() -> None:
    """Same distribution, other variable: densities differ by the Jacobian, posteriors of the variance do not."""
    data = np.random.default_rng(0).normal(size=500) * 3.0
    emission = Gaussian(mean=0.0).resolve(summarise(data))
    sd = np.array([0.5, 2.0])
    expected = stats.invgamma.logpdf(sd**2, 1.5, scale=0.05 * data.var()) + np.log(2 * sd)
    assert float(emission.log_prior({"mean": np.zeros(2), "sd": sd})) == pytest.approx(expected.sum(), rel=1e-10)
    prior = emission.parameters(2)["sd"].prior
    assert integrate.quad(lambda at: np.exp(float(prior.log_prob(at))), 0, np.inf)[0] == pytest.approx(1.0, abs=1e-6)
    draws = np.asarray(prior.sample(jax.random.key(0), (20_000,)))
    assert stats.kstest(draws**2, stats.invgamma(1.5, scale=0.05 * data.var()).cdf).pvalue > 1e-3
    assert Gaussian(1, "diagonal").names == Gaussian(1, "spherical").names == ["mean", "sd"]


@pytest.mark.parametrize("family", [Gaussian(), Gaussian(2, "diagonal")], ids=repr)
def test_default_priors_wait_for_the_data_and_are_finite(family: Gaussian) -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(family)


def test_explicit_priors_and_constants_are_kept() -> None:
    emission = Gaussian(2, covariance=np.eye(2), mean=dist.Normal(np.zeros((3, 1)), 1.0))
    table = emission.parameters(3)
    assert emission.is_resolved and emission.covariance_kind == "full"
    np.testing.assert_array_equal(table["covariance"].value, np.broadcast_to(np.eye(2), (3, 2, 2)))
    assert emission.states_differ(3)
    partly = Gaussian(2, mean=0.0).resolve(summarise(np.random.default_rng(0).normal(size=(20, 2))))
    assert partly.parameters(2)["mean"].value is not None and partly.parameters(2)["covariance"].is_free


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(covariance="round"), "covariance must be one of 'full', 'diagonal', 'spherical'"),
        (lambda: Gaussian(variance=dist.HalfNormal(1.0)), "of one feature has no parameter 'variance'.*as sd="),
        (lambda: Gaussian(covariance=np.eye(1)), "of one feature has no parameter 'covariance'"),
        (lambda: Gaussian(2, sd=1.0), "with full covariance has no parameter 'sd'"),
        (lambda: Gaussian(sd=dist.Normal(0.0, 1.0)), "'sd' of Gaussian needs a positive number"),
        (lambda: Gaussian(2, covariance=dist.Normal(0.0, 1.0)), "'covariance' of Gaussian needs a positive definite"),
        (lambda: Gaussian(2, covariance=-np.eye(2)), "'covariance' of Gaussian needs a positive definite"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()
