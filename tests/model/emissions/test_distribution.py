"""NumPyro distributions as emissions: what cannot work, impossible rows, and what no state can produce."""

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from longhmm import Emission
from longhmm.errors import DataError, ModelError
from model.configurations import exponential_scale

pytestmark = pytest.mark.usefixtures("double_precision")


def normal(**priors: Any) -> Emission:
    return Emission(dist.Normal, **priors)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Emission(dist.Uniform, low=dist.Normal(0.0, 1.0), high=9.0), "'low' of Uniform moves the support"),
        (lambda: Emission(dist.Uniform, low=0.0, high=dist.HalfNormal(1.0)), "'high' of Uniform moves the support"),
        (lambda: Emission(dist.Pareto, scale=dist.HalfNormal(1.0), alpha=2.0), "'scale' of Pareto moves the support"),
        (lambda: normal(loc=0.0, scale=dist.Normal(0.0, 1.0)), "needs a positive number, but its Normal prior"),
        (lambda: normal(loc=0.0, scale=-1.0), "'scale' of Normal needs a positive number, but its fixed value"),
        (lambda: normal(loc=0.0, width=1.0), "Normal has no parameter 'width'"),
        (lambda: Emission(dist.Poisson), "'rate' of Poisson is missing"),
        (lambda: normal(loc=dist.Normal(0.0, 50.0)), "'scale' of Normal is missing"),  # not 1, which nobody chose
        (lambda: Emission(dist.StudentT, df=4.0, scale=1.0), "'loc' of StudentT is missing"),
        (lambda: normal(loc=dist.Normal, scale=1.0), "must be a distribution such as"),
        (lambda: normal(loc="zero", scale=1.0), "'loc' must be a NumPyro distribution"),
        (lambda: normal(loc=dist.Poisson(3.0), scale=1.0), "no unconstrained coordinates"),
        (lambda: normal(loc=dist.Normal(0.0, np.ones(4)), scale=dist.HalfNormal(np.ones(3))), "has shape"),
        (lambda: Emission(exponential_scale, loc=0.0), "'log_scale' of exponential_scale is missing"),
        (lambda: Emission(lambda loc: dist.Normal(0.0, loc), loc=dist.Normal(0.0, 1.0)), "whose 'scale' left a pos"),
        (lambda: Emission(dist.MultivariateNormal, loc=dist.Normal(0.0, np.ones(3)), covariance_matrix=np.eye(3)),
         "one distribution over 1 feature"),
        (lambda: Emission(None), "must override log_density"),
        (lambda: normal(dim=0, loc=0.0), "dim must be a whole number of at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_a_sentence(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


def test_per_state_priors_must_match_the_number_of_states() -> None:
    emission = normal(loc=dist.Normal(np.zeros(3), 1.0), scale=dist.HalfNormal(1.0))
    assert emission.parameters(3)["scale"].shape == (3,)
    with pytest.raises(ModelError, match=r"prior of 'loc' has shape \(3,\), which does not fit 4 states"):
        emission.parameters(4)
    assert emission.states_differ(3)
    assert not normal(loc=0.0, scale=dist.HalfNormal(1.0)).states_differ(3)


@pytest.mark.parametrize(
    ("emission", "value", "message"),
    [
        (Emission(dist.Poisson, rate=dist.Gamma(1.0, 1.0)), -3.0, "row 1 of counts.npy is -3, but a Poisson emission "
         "needs a non-negative integer"),
        (Emission(dist.Poisson, rate=dist.Gamma(1.0, 1.0)), 1.5, "is 1.5, but"),
        (Emission(dist.Binomial, total_count=np.array([3, 8]), probs=dist.Beta(1.0, 1.0)), 9.0, "integer from 0 to 8"),
        (Emission(dist.Beta, concentration1=1.0, concentration0=dist.HalfNormal(1.0)), 1.1, "between 0 and 1"),
    ],
)  # fmt: skip
def test_impossible_values_are_reported_with_their_place(emission: Emission, value: float, message: str) -> None:
    values = np.array([[1.0], [value], [value]])
    with pytest.raises(DataError, match=message):
        emission.check(values, np.ones((3, 1), bool), lambda row: f"row {row} of counts.npy")
    emission.check(values, np.array([[True], [False], [False]]), str) if value != 1.1 else None


def test_rows_of_a_multivariate_support_are_checked_whole() -> None:
    shares = Emission(dist.Dirichlet, dim=3, concentration=dist.LogNormal(0.0, 1.0))
    good, bad = [0.2, 0.3, 0.5], [0.2, 0.3, 0.6]
    shares.check(np.array([good, bad]), np.array([[True] * 3, [True, False, True]]), str)
    with pytest.raises(DataError, match=r"row 1 is \[0.2 0.3 0.6\].*shares that sum to one"):
        shares.check(np.array([good, bad]), np.ones((2, 3), bool), lambda row: f"row {row}")


def test_every_feature_has_bounds_of_its_own() -> None:
    both = Emission(dist.Uniform, dim=2, low=np.array([0.0, 10.0]), high=np.array([1.0, 11.0]))
    seen = np.ones((2, 2), bool)
    both.check(np.array([[0.2, 10.7], [0.4, 10.9]]), seen, str)
    with pytest.raises(DataError, match=r"row 0 is 0\.7 in feature 1"):
        both.check(np.array([[0.2, 0.7], [0.4, 10.9]]), seen, lambda row: f"row {row}")


def test_a_state_that_cannot_produce_a_row_gives_it_no_probability() -> None:
    emission = Emission(dist.Multinomial, dim=2, total_count=np.array([2, 5]), probs=dist.Dirichlet(np.ones(2)))
    params = {"total_count": np.array([2, 5]), "probs": np.array([[0.5, 0.5], [0.2, 0.8]])}
    answer = np.asarray(emission.log_density(params, np.array([[1.0, 1.0], [2.0, 3.0]])))
    first, second = stats.multinomial.logpmf([1, 1], 2, [0.5, 0.5]), stats.multinomial.logpmf([2, 3], 5, [0.2, 0.8])
    np.testing.assert_allclose(answer, [[first, -np.inf], [-np.inf, second]], rtol=1e-9)
