"""Blocked Gibbs sampling against closed forms, and Geweke's joint test of sampler, simulator and priors together."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special

import longhmm as lh
from longhmm.backends import read
from longhmm.model.conjugate import RootInverseGamma
from longhmm.samplers.gibbs import Gibbs
from samplers.exact_chains import assert_moments, joint_chain, run
from samplers.targets import dirichlet_moments, known_mean, known_states, normal_mean


def with_known_states() -> np.ndarray:
    target, _ = known_states(500)
    return run(Gibbs(), target.model, target.data, target.params, 2000)[0]["transition"]


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return with_known_states()


def test_known_states_give_dirichlet_rows(rows: np.ndarray) -> None:
    _, concentration = known_states(500)
    mean, sd = dirichlet_moments(concentration)
    possible = concentration > 0
    assert_moments(rows[..., possible], mean[possible], sd[possible])
    assert np.all(rows[..., ~possible] == 0)


def test_one_state_gives_the_conjugate_posteriors() -> None:
    target, mean, sd = normal_mean(200)
    draws, _ = run(Gibbs(), target.model, target.data, target.params, 3000)
    assert_moments(draws["mean"][..., 0], mean, sd)


@pytest.mark.slow
def test_one_state_gives_an_inverse_wishart_covariance() -> None:
    target, degrees, scale = known_mean()
    draws, _ = run(Gibbs(), target.model, target.data, target.params, 4000)
    # The inverse is Wishart with scale^-1: its mean is degrees * scale^-1, Var W_ij = degrees (V_ij^2 + V_ii V_jj).
    inverse = np.linalg.inv(scale)
    sd = np.sqrt(degrees * (inverse**2 + np.outer(np.diag(inverse), np.diag(inverse))))
    precision = np.linalg.inv(draws["covariance"][:, :, 0])
    rows, columns = np.triu_indices(2)
    assert_moments(precision[..., rows, columns], (degrees * inverse)[rows, columns], sd[rows, columns])


def test_flat_priors_of_mean_and_sd_have_a_closed_form() -> None:
    """Under flat priors 1 / variance is Gamma((n - 2) / 2, SS / 2) once the mean is integrated out."""
    values = np.random.default_rng(0).normal(3.0, 2.0, size=12)
    mean, sd = (dist.ImproperUniform(getattr(dist.constraints, name), (), ()) for name in ("real", "positive"))
    model = lh.HMM(1, lh.Gaussian(mean=mean, sd=sd))
    start = {"transition": [[1.0]], "mean": [0.0], "sd": [1.0]}
    draws, _ = run(Gibbs(), model, values, start, 4000)
    shape, rate = (len(values) - 2) / 2, np.sum((values - values.mean()) ** 2) / 2
    assert_moments(1.0 / draws["sd"][..., 0] ** 2, shape / rate, np.sqrt(shape) / rate)


def test_equal_seeds_give_equal_draws(rows: np.ndarray) -> None:
    np.testing.assert_array_equal(with_known_states(), rows)
    assert not np.array_equal(rows[0], rows[1])  # chains have seeds of their own


CONCENTRATION = np.array([[4.0, 2.0], [1.0, 3.0]])


def assert_rows_have_the_prior(transition: np.ndarray) -> None:
    mean, sd = dirichlet_moments(CONCENTRATION)
    assert_moments(transition[..., 0], mean[:, 0], sd[:, 0])


def in_chunks_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "CHUNK", 8)
    monkeypatch.setattr(read, "LEAST_CHUNK", 8)


@pytest.mark.slow
def test_geweke_poisson(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three chunks of 8 times, so that paths are joined; rates are Gamma(3, 1) and Gamma(6, 1/2)."""
    in_chunks_of_eight(monkeypatch)
    shape, rate = np.array([3.0, 6.0]), np.array([1.0, 0.5])
    model = lh.HMM(2, lh.Poisson(rate=dist.Gamma(shape, rate)), transition_prior=CONCENTRATION)

    def prior(key: jax.Array) -> dict:
        return {"transition": CONCENTRATION / CONCENTRATION.sum(1, keepdims=True), "rate": shape / rate}

    draws = joint_chain(Gibbs(), model, prior, length=20, steps=20_000, seed=1)
    assert_moments(draws["rate"], shape / rate, np.sqrt(shape) / rate)
    assert_rows_have_the_prior(draws["transition"])


@pytest.mark.slow
def test_geweke_gaussian_with_a_stationary_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start depends on A, so rows are tested; variances by their logarithms, which have light tails."""
    in_chunks_of_eight(monkeypatch)
    emission = lh.Gaussian(mean=dist.Normal(np.array([-1.0, 1.0]), 1.0), sd=RootInverseGamma(3.5, 2.0))
    model = lh.HMM(2, emission, transition_prior=CONCENTRATION, initial="stationary")

    def prior(key: jax.Array) -> dict:
        rows = CONCENTRATION / CONCENTRATION.sum(1, keepdims=True)
        return {"transition": rows, "mean": [-1.0, 1.0], "sd": np.ones(2)}

    draws = joint_chain(Gibbs(), model, prior, length=20, steps=30_000, seed=2)
    assert_moments(draws["mean"], np.array([-1.0, 1.0]), np.ones(2))
    log_mean, log_sd = np.log(2.0) - special.digamma(3.5), np.sqrt(special.polygamma(1, 3.5))
    assert_moments(2.0 * np.log(draws["sd"]), np.full(2, log_mean), np.full(2, log_sd))
    assert_rows_have_the_prior(draws["transition"])


@pytest.mark.slow
def test_geweke_without_a_closed_form() -> None:
    """A log-normal prior of the scale is not conjugate: Hamiltonian steps with a Metropolis test."""
    emission = lh.LogNormal(loc=dist.Normal(0.0, 1.0), scale=dist.LogNormal(0.0, 0.5))
    model = lh.HMM(2, emission, transition_prior=CONCENTRATION)

    def prior(key: jax.Array) -> dict:
        rows = CONCENTRATION / CONCENTRATION.sum(1, keepdims=True)
        return {"transition": rows, "loc": [0.0, 0.5], "scale": [1.0, 1.0]}

    draws = joint_chain(Gibbs(), model, prior, length=15, steps=20_000, seed=3)
    assert_moments(draws["loc"], np.zeros(2), np.ones(2))
    assert_moments(np.log(draws["scale"]), np.zeros(2), np.full(2, 0.5))
    assert_rows_have_the_prior(draws["transition"])
