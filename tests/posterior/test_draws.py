"""Labelled draws: names of axes, thinning, and means."""

import numpy as np
import numpyro.distributions as dist
import pytest

from longhmm import Categorical, Gaussian, GaussianMixture, Poisson, Tied, VonMises
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.draws import coordinate_axes, parameter_axes
from longhmm.posterior.posterior import Posterior
from posterior.fakes import chains_of


def test_dimensions_and_coordinates(posterior):
    draws = posterior.draws
    assert draws["transition"].dims == ("chain", "draw", "state", "to_state")
    assert draws["mean"].dims == ("chain", "draw", "state")
    assert dict(draws.sizes) == {"chain": 4, "draw": 500, "state": 2, "to_state": 2}
    assert set(draws.data_vars) == {"transition", "mean"}  # neither initial nor the fixed sd
    assert draws["mean"].dtype == np.float64
    assert float(draws["mean"].sel(chain=3, draw=499, state=1)) == draws["mean"].values[3, 499, 1]
    assert posterior.unconstrained["transition"].dims == ("chain", "draw", "transition_coordinate")
    assert posterior.sample_stats["log_likelihood"].dims == ("chain", "draw")


def test_draws_are_the_natural_parameters(known, posterior):
    natural = known.draw()
    np.testing.assert_allclose(posterior.draws["transition"], natural["transition"], rtol=1e-12)
    np.testing.assert_allclose(posterior.draws["mean"], natural["mean"], rtol=1e-12)


@pytest.mark.parametrize(
    ("emission", "names"),
    [
        (Gaussian(), {"mean": ("state",), "sd": ("state",)}),
        (Gaussian(dim=2), {"mean": ("state", "feature"), "covariance": ("state", "feature", "with_feature")}),
        (Gaussian(dim=2, covariance="diagonal"), {"mean": ("state", "feature"), "variance": ("state", "feature")}),
        (Categorical(4), {"probs": ("state", "category")}),
        (GaussianMixture(2), dict.fromkeys(("weights", "means", "scales"), ("state", "component"))),
        (Tied(Poisson(), levels=(0, 0, 1)), {"rate": ("level",)}),
        (Poisson(dim=2), {"rate": ("state", "feature")}),
    ],
)
def test_names_of_axes(emission, names):
    found = {name: tuple(axes) for name, axes in parameter_axes(HMM(3, emission)).items()}
    assert found == {"transition": ("state", "to_state"), **names}


def test_coordinates_with_fewer_numbers_have_their_own_axes():
    assert coordinate_axes(HMM(3, Gaussian(dim=2)))["covariance"] == ("state", "covariance_coordinate")


def test_parameters_of_one_draw_are_complete(posterior):
    params = posterior.params_at(1, 7)
    assert np.array_equal(params["mean"], posterior.draws["mean"].values[1, 7])
    assert params["sd"].tolist() == [1.0, 1.0]
    assert params["initial"].tolist() == [0.5, 0.5]
    with pytest.raises(ModelError, match="chain 4 and draw 0"):
        posterior.params_at(4, 0)


def test_thinning_takes_evenly_from_all_chains(posterior):
    picked = posterior.thinned(8)
    assert [chain for chain, _ in picked] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [draw for _, draw in picked[:2]] == [125, 375]
    assert len(set(posterior.thinned())) == 2000
    assert len(posterior.thinned(10**6)) == 2000
    assert len(list(posterior.iterate(5))) == 5
    with pytest.raises(ModelError, match="at least 1"):
        posterior.thinned(0)


def test_mean_parameters(known, posterior):
    params = posterior.mean_params()
    exact = known.counts / known.counts.sum(axis=1, keepdims=True)
    sd = np.sqrt(exact * (1 - exact) / (known.counts.sum(axis=1, keepdims=True) + 1))
    assert np.all(np.abs(params["transition"] - exact) < 4 * sd / np.sqrt(2000))
    np.testing.assert_allclose(params["transition"].sum(axis=1), 1.0, rtol=1e-15)
    assert np.all(np.abs(params["mean"] - known.mean) < 4 * known.sd / np.sqrt(2000))


def test_angles_average_as_angles():
    model = HMM(1, VonMises(loc=dist.VonMises(0.0, 0.1), concentration=2.0))
    angles = np.array([np.pi - 0.1, -np.pi + 0.2, np.pi - 0.1, -np.pi + 0.2]).reshape(2, 2, 1)
    natural = {"transition": np.ones((2, 2, 1, 1)), "loc": angles, "concentration": np.full((2, 2, 1), 2.0)}
    posterior = Posterior.from_chains(model, chains_of(model, natural))
    assert posterior.mean_params()["loc"][0] == pytest.approx(-np.pi + 0.05, abs=1e-6)


def test_the_run_keeps_its_own_arrays(known):
    chains = chains_of(known.model, known.draw(2, 5))
    before = {name: value.copy() for name, value in chains.coordinates.items()}
    posterior = Posterior.from_chains(known.model, chains, known.sequences)
    posterior.settings["windows"]["count"] = 99
    assert chains.settings["windows"]["count"] == 10
    assert all(np.array_equal(before[name], chains.coordinates[name]) for name in before)
    assert posterior.settings["data"]["length"] == 1500
