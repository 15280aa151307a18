"""NUTS and HMC on the exact marginal likelihood: known posteriors, and agreement with Gibbs sampling."""

import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.samplers.full_data_hmc import HMC, NUTS
from longhmm.samplers.gibbs import Gibbs
from samplers.exact_chains import assert_moments, assert_same_law, run
from samplers.targets import dirichlet_moments, known_states, normal_mean

TRANSITION = np.array([[0.9, 0.1], [0.2, 0.8]])


def test_nuts_on_one_state_gives_the_conjugate_posterior() -> None:
    """With the posterior variance given as inverse mass, only the step size is adapted."""
    target, mean, sd = normal_mean(200)
    sampler = NUTS(inverse_mass=[[sd**2]])
    draws, info = run(sampler, target.model, target.data, target.params, 2000)
    assert_moments(draws["mean"][..., 0], mean, sd)
    assert 0.7 < float(info.stats["acceptance"].mean()) < 0.97
    assert not bool(info.stats["diverged"].any())
    bound = sampler.estimator(None, None).bind(target.model, target.data, target.params)
    with pytest.raises(ModelError, match=r"inverse_mass must be a positive definite matrix of shape \(1, 1\)"):
        start = lh.unconstrain(target.model, target.params)
        NUTS(inverse_mass=np.eye(3)).init(bound, jax.random.key(0), start)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [NUTS(), HMC()], ids=["NUTS", "HMC"])
def test_adapted_samplers_on_dirichlet_rows(sampler: NUTS | HMC) -> None:
    """All states known: skewed coordinates (a transition that never occurs), adapted from scratch."""
    target, concentration = known_states(300)
    draws, _ = run(sampler, target.model, target.data, target.params, 4000)
    mean, sd = dirichlet_moments(concentration)
    possible = concentration > 0
    assert_moments(draws["transition"][..., possible], mean[possible], sd[possible])


@pytest.mark.slow
def test_nuts_and_gibbs_agree_on_a_poisson_model() -> None:
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": TRANSITION, "rate": np.array([2.0, 5.0])}
    _, y = lh.simulate(model, params, 1000, seed=4)
    exact, _ = run(NUTS(), model, y, params, 3000)
    gibbs, _ = run(Gibbs(), model, y, params, 10_000)
    for name in ("transition", "rate"):
        assert_same_law(gibbs[name], exact[name])


@pytest.mark.slow
def test_nuts_and_gibbs_agree_on_a_gaussian_model_with_missing_values() -> None:
    """Two features, some values missing one by one: Gibbs falls back on Metropolis-tested moves."""
    model = lh.HMM(2, lh.Gaussian(dim=2), initial="stationary")
    params = {
        "transition": TRANSITION,
        "mean": np.array([[0.0, 0.0], [2.0, 1.0]]),
        "covariance": np.stack([np.eye(2), [[1.0, 0.5], [0.5, 1.0]]]),
    }
    _, y = lh.simulate(model, params, 1000, seed=5)
    y = np.array(y, np.float64)
    y[np.random.default_rng(0).random(y.shape) < 0.15] = np.nan
    exact, _ = run(NUTS(), model, y, params, 3000)
    gibbs, info = run(Gibbs(), model, y, params, 8000)
    assert float(info.stats["acceptance"].mean()) > 0.6
    for name in ("transition", "mean", "covariance"):
        assert_same_law(gibbs[name], exact[name])
