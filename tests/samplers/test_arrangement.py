"""States in other places: every wrong order of a structured model is put right, and what is right stays."""

from itertools import permutations

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.progress import Bar
from longhmm.samplers import mode
from longhmm.samplers.arrangement import rearranged

# From the first state there is no direct way to the last, which is rarely visited.
TRANSITION = np.array([[0.98, 0.02, 0.0], [0.01, 0.98, 0.01], [0.1, 0.1, 0.8]])
MEAN = np.array([0.0, 3.0, 7.0])


@pytest.fixture(scope="module")
def structured():
    model = lh.HMM(3, lh.Gaussian(), transition_prior=np.where(TRANSITION > 0, 1.0, 0.0))
    params = {"transition": TRANSITION, "mean": MEAN, "sd": np.ones(3)}
    data = open_data(lh.simulate(model, params, 6000, seed=1)[1])
    return model.resolve(data), data, params


@pytest.mark.parametrize("order", list(permutations(range(3)))[1:])
def test_the_search_ends_in_the_right_order_from_every_wrong_one(structured, monkeypatch, order):
    model, data, params = structured
    wrong = {**params, "mean": MEAN[list(order)]}
    monkeypatch.setattr(mode, "initial_params", lambda *_, **__: [wrong])
    best, *others = mode.local_optima(model, data, data, None, 1, 0, Bar(False))
    assert best.log_posterior == pytest.approx(mode.settled(model, params, data).log_posterior, abs=0.1)
    np.testing.assert_allclose(best.params["mean"].ravel(), MEAN, atol=0.2)
    # Who says where to begin is not led elsewhere.
    (kept,) = mode.local_optima(model, data, data, wrong, 1, 0, Bar(False))
    assert kept.log_posterior == pytest.approx(others[-1].log_posterior, abs=0.1)
    assert kept.log_posterior < best.log_posterior - 10


def test_what_stands_right_stays(structured):
    model, data, params = structured
    assert rearranged(model, mode.settled(model, params, data).params, data) is None


def test_nothing_is_rearranged_where_an_order_means_nothing(structured, monkeypatch):
    """Without a pass over the data: states that are alike, and states that have priors of their own."""
    _, data, params = structured
    monkeypatch.setattr("longhmm.samplers.arrangement.totals", None)
    free = lh.HMM(3, lh.Gaussian()).resolve(data)
    own = lh.HMM(3, lh.Gaussian(mean=dist.Normal(MEAN, 1.0)), transition_prior=np.where(TRANSITION > 0, 1.0, 0.0))
    for model in (free, own.resolve(data)):
        assert rearranged(model, params, data) is None


def test_states_that_share_a_level_stay_together():
    """Of three states on two levels the first two share one: no order parts them."""
    prior = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    model = lh.HMM(3, lh.Tied(lh.Gaussian(), levels=(0, 0, 1)), transition_prior=prior)
    params = {
        "transition": [[0.9, 0.0, 0.1], [0.0, 0.98, 0.02], [0.05, 0.05, 0.9]],
        "mean": [0.0, 4.0],
        "sd": [1.0, 1.0],
    }
    data = open_data(lh.simulate(model, params, 4000, seed=2)[1])
    resolved = model.resolve(data)
    assert rearranged(resolved, resolved.validate(params), data) is None
    turned = resolved.validate({**params, "mean": np.array([4.0, 0.0])})
    found = rearranged(resolved, turned, data)
    assert found is None or found["mean"].shape == turned["mean"].shape
