"""The named families: natural parameters, default priors, checks of data, ties."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from longhmm import (
    HMM,
    Bernoulli,
    Categorical,
    Emission,
    Gamma,
    Gaussian,
    GaussianMixture,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
    Tied,
    VonMises,
)
from longhmm.errors import DataError, ModelError
from longhmm.model.emissions.gaussian_mixture import OrderedNormal
from longhmm.model.emissions.von_mises import widest_gap
from longhmm.model.parameters import constrain, coordinate_shapes
from longhmm.model.serialise import emission_from_config, emission_to_config
from longhmm.model.summary import summarise
from model.configurations import covariances, named, observations, prior_draw

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("name", ["gamma-2d", "poisson", "bernoulli-3d", "von-mises"])
def test_natural_parameters_give_the_density(name: str) -> None:
    configuration = named(name)
    emission: Any = configuration.emission
    _, y = observations(configuration, 8)

    @jax.jit
    def both(params: Any) -> Any:
        eta, log_normaliser = emission.natural_parameters(params)
        base = emission.log_base_measure(y) if hasattr(emission, "log_base_measure") else 0.0 * y
        base = base.sum(-1, keepdims=True) - log_normaliser.sum(-1)
        return (emission.lowering.numbers(y) @ eta.T + base,
                emission.log_density(params, y if emission.vector_valued else y[:, 0]))  # fmt: skip

    natural, direct = both(configuration.params)
    np.testing.assert_allclose(natural, direct, rtol=1e-9, atol=1e-9)


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


@pytest.mark.parametrize(
    "family",
    [Gaussian(), Gaussian(2, "diagonal"), LogNormal(2), StudentT(), Gamma(), Poisson(2), NegativeBinomial(),
     Categorical(), Bernoulli(), VonMises(2), GaussianMixture(3), Tied(Poisson(), (0, 0, 1))],
    ids=repr,
)  # fmt: skip
def test_default_priors_wait_for_the_data_and_are_finite(family: Emission) -> None:
    n_states = 3
    assert not family.is_resolved
    if not isinstance(family, Categorical):
        table = family.parameters(n_states)
        assert all(parameter.is_free and parameter.prior is None for parameter in table.values())
    varied, constant = np.arange(60.0 * family.dim).reshape(60, -1) % 3, np.ones((60, family.dim))
    hole = np.arange(60)[:, None] == 5
    both = [family.resolve(summarise(np.where(hole, np.nan, values))) for values in (varied, constant)]
    assert all(one.is_resolved for one in both)
    origins = [{key: np.zeros(shape) for key, shape in coordinate_shapes(one.parameters(n_states)).items()}
               for one in both]  # fmt: skip

    @jax.jit
    def log_priors(coordinates: Any) -> Any:
        return [one.log_prior(constrain(one.parameters(n_states), u)) for one, u in zip(both, coordinates, strict=True)]

    assert np.all(np.isfinite(log_priors(origins)))
    assert set(emission_from_config(emission_to_config(both[0])).names) == set(family.names)
    assert emission_from_config(emission_to_config(family)).is_resolved is False


def test_unresolved_priors_are_refused_with_the_remedy() -> None:
    with pytest.raises(ModelError, match="resolve the model on the data first"):
        Poisson().log_prior({"rate": np.ones(2)})
    with pytest.raises(ModelError, match="resolve the model on the data first"):
        prior_draw(Poisson(), jax.random.key(0), 2)
    with pytest.raises(ModelError, match="number of categories is not known"):
        Categorical().parameters(2)
    with pytest.raises(ModelError, match=r"has 3 feature\(s\) per observation, but .* describes 2"):
        HMM(2, Gaussian(2)).resolve(np.zeros((5, 3)))
    with pytest.raises(ModelError, match="needs categories 0, 1, 2"):
        Categorical().resolve(summarise(np.array([0.5, 1.0])))


def test_explicit_priors_and_constants_are_kept() -> None:
    emission = Gaussian(2, covariance=np.eye(2), mean=dist.Normal(np.zeros((3, 1)), 1.0))
    table = emission.parameters(3)
    assert emission.is_resolved and emission.covariance_kind == "full"
    np.testing.assert_array_equal(table["covariance"].value, np.broadcast_to(np.eye(2), (3, 2, 2)))
    assert emission.states_differ(3)
    partly = Gaussian(2, mean=0.0).resolve(summarise(np.random.default_rng(0).normal(size=(20, 2))))
    assert partly.parameters(2)["mean"].value is not None and partly.parameters(2)["covariance"].is_free


def test_number_of_categories_comes_from_the_prior_or_the_data() -> None:
    assert Categorical(probs=dist.Dirichlet(np.ones(5))).parameters(2)["probs"].shape == (2, 5)
    assert Categorical().resolve(summarise(np.array([0.0, 3.0, np.nan]))).parameters(2)["probs"].shape == (2, 4)


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
        (lambda: Poisson(rate=dist.Normal(0.0, 1.0)), "'rate' of Poisson needs a positive number"),
        (lambda: Poisson(0), "dim must be a whole number of at least 1"),
        (lambda: Categorical(3, probs=dist.Dirichlet(np.ones(4))), "prior of 'probs' has shape"),
        (lambda: Categorical(0), "n_categories must be a whole number of at least 1"),
        (lambda: GaussianMixture(2, means=dist.Normal(0.0, 1.0)), "'means' of GaussianMixture needs an increasing"),
        (lambda: GaussianMixture(0), "n_components must be a whole number of at least 1"),
        (lambda: Tied(Gaussian(), (0, 2)), "levels must be one integer per state"),
        (lambda: Tied(Tied(Gaussian(), (0, 1)), (0, 1)), "not tied itself"),
        (lambda: Tied(Gaussian(), (0, 0, 1)).parameters(2), "levels has 3 entries"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


@pytest.mark.parametrize(
    ("emission", "value", "message"),
    [
        (Poisson(), -3, "row 2 of counts.npy is -3, but a Poisson emission needs a non-negative integer"),
        (NegativeBinomial(), 0.5, "is 0.5, but a NegativeBinomial emission needs a non-negative integer"),
        (LogNormal(), 0.0, "a LogNormal emission needs a positive number"),
        (Gamma(), -1.0, "a Gamma emission needs a positive number"),
        (Categorical(3), 3, "a Categorical emission needs an integer from 0 to 2"),
        (Categorical(3), 0.5, "an integer from 0 to 2"),
        (Bernoulli(), 2, "a Bernoulli emission needs 0 or 1"),
        (VonMises(), 3.2, "a VonMises emission needs an angle between -pi and pi"),
        (Tied(Poisson(), (0, 1, 1)), -1, "a Poisson emission needs"),
    ],
)
def test_impossible_values_are_reported(emission: Emission, value: float, message: str) -> None:
    values = np.array([[1], [1], [value]])
    with pytest.raises(DataError, match=message):
        emission.check(values, np.ones((3, 1), bool), lambda row: f"row {row} of counts.npy")
    emission.check(values, np.array([[True], [True], [False]]), str)


def test_the_feature_of_an_impossible_value_is_named() -> None:
    with pytest.raises(DataError, match="row 0 is 4 in feature 1, but a Bernoulli"):
        Bernoulli(2).check(np.array([[1, 4]]), np.ones((1, 2), bool), lambda row: f"row {row}")
    VonMises().check(np.array([[np.float32(np.pi)]], np.float32), np.ones((1, 1), bool), str)


def test_tied_states_share_columns_and_parameters() -> None:
    tied, plain = Tied(Poisson(rate=dist.Gamma(1.0, 1.0)), levels=(1, 0, 1)), Poisson(rate=dist.Gamma(1.0, 1.0))
    params, y = {"rate": np.array([1.0, 6.0])}, np.arange(5.0)
    base = np.asarray(plain.log_density(params, y))
    np.testing.assert_array_equal(tied.log_density(params, y), base[:, [1, 0, 1]])
    np.testing.assert_array_equal(tied.location(params), [6.0, 1.0, 6.0])
    assert tied.parameters(3)["rate"].shape == (2,)
    assert float(tied.log_prior(params)) == pytest.approx(-7.0)
    draws = np.asarray(tied.sample(jax.random.key(0), params, np.repeat([0, 1], 4000)))
    assert draws[:4000].mean() == pytest.approx(6.0, abs=0.2) and draws[4000:].mean() == pytest.approx(1.0, abs=0.1)


def test_ordered_normal_integrates_to_one_and_draws_order_statistics() -> None:
    prior = OrderedNormal(1.0, 2.0, 2)
    log_prob = jax.jit(prior.log_prob)
    mass = integrate.dblquad(lambda b, a: float(np.exp(log_prob(np.array([a, b])))), -9, 11, lambda a: a, 11,
                             epsabs=1e-3, epsrel=1e-3)[0]  # fmt: skip
    assert mass == pytest.approx(1.0, abs=2e-3)
    draws = np.asarray(prior.sample(jax.random.key(0), (20_000,)))
    assert np.all(np.diff(draws) > 0)
    assert draws.mean() == pytest.approx(1.0, abs=0.05)
    # The larger of two standard normal draws has mean 1 / sqrt(pi).
    assert draws[:, 1].mean() == pytest.approx(1.0 + 2.0 / np.sqrt(np.pi), abs=0.06)


def test_directions_are_cut_where_there_are_no_data() -> None:
    around_pi = np.mod(np.random.default_rng(0).normal(np.pi, 0.3, 500) + np.pi, 2 * np.pi) - np.pi
    cut = widest_gap(summarise(around_pi).quantiles[0])
    assert abs(cut) < 1.0
    prior = VonMises().resolve(summarise(around_pi)).parameters(2)["loc"]
    assert np.all(np.asarray(prior.support(np.array([np.pi, np.pi + 0.5]))))  # type: ignore[misc]
