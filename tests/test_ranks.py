"""Simulation-based calibration: right where the sampler is, and it sees one that is not."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from samplers.targets import dirichlet_moments

FILE = spec_from_file_location("ranks", Path(__file__).parents[1] / "benchmarks" / "ranks.py")
ranks = module_from_spec(FILE)  # other files of that folder have names of packages here
FILE.loader.exec_module(ranks)
Ranks, by_sampler, simulated_ranks, thinned = ranks.Ranks, ranks.by_sampler, ranks.simulated_ranks, ranks.thinned
columns, natural, numbers, prior_params = ranks.columns, ranks.natural, ranks.numbers, ranks.prior_params
PRIOR = np.array([[18.0, 2.0], [4.0, 16.0]])
MODEL = lh.HMM(2, lh.Poisson(rate=dist.Gamma(np.array([20.0, 80.0]), 10.0)), transition_prior=PRIOR)


def scaled(method, factor):
    """The same method with its draws pulled towards their mean (or away): wrong on purpose, to see that it shows."""

    def wrong(model, data, params, seed):
        found = method(model, data, params, seed)
        means = {name: value.mean(axis=(0, 1), keepdims=True) for name, value in found.items()}
        return {name: means[name] + factor * (value - means[name]) for name, value in found.items()}

    return wrong


def drawn_once(method):
    """The same method, which keeps its draws of each seed: those that are scaled are the ones that were right."""
    kept = {}

    def remembering(model, data, params, seed):
        return kept[seed] if seed in kept else kept.setdefault(seed, method(model, data, params, seed))

    return remembering


def conjugate_ranks(width, shift=0.0, replications=2000):
    """A normal mean with known variance: exact draws made wider and shifted, in posterior sds."""
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(replications):
        truth = rng.normal()
        mean, sd = 0.8 * (truth + 0.5 * rng.normal()), np.sqrt(0.2)
        rows.append((mean + sd * (shift + width * rng.normal(size=(99, 1))) < truth).sum(axis=0))
    return Ranks(("mean[0]",), np.array(rows), 99, ())


def test_ranks_of_exact_draws_are_uniform_and_others_are_not():
    right = conjugate_ranks(1.0)
    assert right.right() and right.widths()[0] == pytest.approx(1.0, abs=0.04)
    narrow, wide, shifted = conjugate_ranks(0.85), conjugate_ranks(1.15), conjugate_ranks(1.0, 0.2)
    assert not narrow.right() and narrow.widths()[0] > 1.04
    assert not wide.right() and wide.widths()[0] < 0.96
    assert not shifted.right()


def test_parameters_come_from_the_prior():
    import jax

    drawn = [prior_params(MODEL, jax.random.key(index)) for index in range(400)]
    rates = np.array([each["rate"] for each in drawn])
    np.testing.assert_allclose(rates.mean(0), [2.0, 8.0], atol=4 * np.sqrt([0.2, 0.8]).max() / 20)
    rows = np.array([each["transition"] for each in drawn])
    mean, sd = dirichlet_moments(PRIOR)
    np.testing.assert_array_less(np.abs(rows.mean(0) - mean), 4 * sd / 20)
    np.testing.assert_allclose(rows.std(0), sd, rtol=0.2)


def test_what_follows_from_the_parameters_is_ranked_too():
    import jax

    assert columns(MODEL) == (
        "transition[0, 0]", "transition[1, 0]", "rate[0]", "rate[1]",
        "dwell[0]", "dwell[1]", "stationary[0]", "stationary[1]", "log likelihood",
    )  # fmt: skip
    params = {"transition": np.array([[0.9, 0.1], [0.3, 0.7]]), "rate": np.array([2.0, 8.0])}
    data = open_data(lh.simulate(MODEL, params, 50, seed=1)[1])
    direct = numbers(MODEL, {name: value[None] for name, value in params.items()}, data)
    likely = lh.log_likelihood(MODEL, params, data)
    np.testing.assert_allclose(direct, [[0.9, 0.3, 2.0, 8.0, 10.0, 10 / 3, 0.75, 0.25, likely]], rtol=1e-12)
    with jax.enable_x64(True):
        coordinates = {name: np.asarray(each)[None] for name, each in lh.unconstrain(MODEL, params).items()}
    np.testing.assert_allclose(numbers(MODEL, natural(MODEL, coordinates), data), direct, rtol=1e-6)


@pytest.mark.slow
def test_gibbs_is_calibrated_and_a_mis_scaled_posterior_is_seen():
    method = drawn_once(by_sampler(lh.Gibbs(), chains=1, draws=396, warmup=20))
    found = simulated_ranks(MODEL, method, length=80, replications=40)
    assert found.ranks.shape == (40, 9) and not found.failed
    assert found.right(), found.p_values()
    narrow = simulated_ranks(MODEL, scaled(method, 0.4), length=80, replications=40)
    # All but the log likelihood, which is too high for all data sets rather than too narrow.
    assert not narrow.right() and np.all(narrow.widths()[:-1] > found.widths()[:-1])


@pytest.mark.slow
def test_the_default_is_calibrated_and_a_mis_scaled_one_is_seen():
    method = drawn_once(by_sampler(lh.ControlVariateSGLD(), chains=2, draws=150))
    found = simulated_ranks(MODEL, method, length=3000, replications=100)
    assert found.right(), found.p_values()
    assert np.all(np.abs(found.widths() - 1) < 0.2)
    assert not simulated_ranks(MODEL, scaled(method, 0.5), length=3000, replications=100).right()


def test_too_few_draws_are_refused():
    with pytest.raises(ModelError, match="at most the number of draws, 5, got 9"):
        thinned({"rate": np.zeros((1, 5, 2))}, 9)
