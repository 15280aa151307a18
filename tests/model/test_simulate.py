"""Simulated chains and observations: frequencies, moments, seeds, prefixes, forbidden transitions, speed."""

from __future__ import annotations

import time

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from longhmm import AR, Emission, Gaussian
from longhmm.errors import ModelError
from longhmm.model import simulate as module
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm_reproduction.models import lognormal, rc

K = 3
MODEL = HMM(K, Gaussian(2))
PARAMS = {
    "initial": [0.0, 0.25, 0.75],
    "transition": [[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.05, 0.0, 0.95]],
    "mean": [[0.0, 1.0], [5.0, -1.0], [2.0, 20.0]],
    "covariance": [[[1.0, 0.5], [0.5, 2.0]], [[0.1, 0.0], [0.0, 0.3]], [[4.0, -3.0], [-3.0, 5.0]]],
}
LENGTH = 3 * module.BLOCK + 777  # several blocks, the last one short


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    return simulate(MODEL, PARAMS, LENGTH, seed=1)


def whole_path(initial, transition, length, key):
    return np.concatenate(list(module.state_pieces(initial, transition, length, key)))[:length]


def test_shapes_and_types(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    states, observations = drawn
    assert states.shape == (LENGTH,) and states.dtype == np.int32
    assert observations.shape == (LENGTH, 2) and observations.dtype == np.float32
    assert np.isfinite(observations).all() and states.min() == 0 and states.max() == K - 1


def test_transitions_have_their_probabilities_also_across_pieces_and_blocks(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    states, transition = drawn[0], np.array(PARAMS["transition"])
    places = np.arange(LENGTH - 1)
    joints = (places % module.PIECE) == 0  # state 0 is drawn apart, so pieces begin at 1, 513, ...
    for chosen, few in ((np.ones(LENGTH - 1, bool), False), (joints, True)):
        counts = np.zeros((K, K))
        np.add.at(counts, (states[:-1][chosen], states[1:][chosen]), 1)
        assert (counts[transition == 0] == 0).all()
        visits = counts.sum(1, keepdims=True)
        error = np.sqrt(transition * (1 - transition) / visits)
        assert (np.abs(counts / visits - transition) <= 5 * error).all()
        assert visits.min() > (20 if few else 1000)


def test_pieces_are_joined_where_walks_from_different_states_never_meet() -> None:
    """A cycle goes round for ever, and a chain that never moves stays: over pieces and over blocks."""
    length = 2 * module.BLOCK + 100
    initial, key = np.array([0.0, 1.0, 0.0]), jax.random.key(0)
    around = whole_path(initial, np.roll(np.eye(K), 1, axis=1), length, key)
    np.testing.assert_array_equal(around, (1 + np.arange(length)) % K)
    assert (whole_path(initial, np.eye(K), length, key) == 1).all()


def test_a_state_does_not_depend_on_the_one_before_the_last(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    """The law of the next state given state 1 is the same whichever state came before."""
    states, transition = drawn[0], np.array(PARAMS["transition"])
    for before in (0, 1):
        here = (states[:-2] == before) & (states[1:-1] == 1)
        shares = np.bincount(states[2:][here], minlength=K) / here.sum()
        assert np.abs(shares - transition[1]).max() < 5 * 0.5 / np.sqrt(here.sum())


def test_observations_have_the_moments_of_their_states(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    states, observations = drawn
    for k in range(K):
        mine = observations[states == k].astype(np.float64)
        mean, covariance = np.array(PARAMS["mean"][k]), np.array(PARAMS["covariance"][k])
        assert (np.abs(mine.mean(0) - mean) < 5 * np.sqrt(np.diag(covariance) / len(mine))).all()
        spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2)
        assert (np.abs(np.cov(mine.T) - covariance) < 5 * spread / np.sqrt(len(mine))).all()
    # Draws are independent given the states: neighbours in one state are uncorrelated, also across blocks.
    residual = (observations - np.array(PARAMS["mean"])[states])[:, 0] / np.sqrt(
        np.array(PARAMS["covariance"])[states, 0, 0]
    )
    for lag in (1, module.PIECE, module.BLOCK):
        assert abs(np.mean(residual[lag:] * residual[:-lag])) < 5 / np.sqrt(LENGTH - lag)


def test_a_longer_simulation_begins_with_the_shorter_one(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    for length in (1, 2, 700, module.BLOCK, module.BLOCK + 1):
        states, observations = simulate(MODEL, PARAMS, length, seed=1)
        np.testing.assert_array_equal(states, drawn[0][:length])
        np.testing.assert_array_equal(observations, drawn[1][:length])


def test_rows_that_depend_on_those_before_are_drawn_alike_however_many_follow() -> None:
    model = HMM(2, AR(lags=1))
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "intercept": [0, 3], "phi": [[0.5], [-0.2]], "sd": [1, 2]}
    short, longer = (simulate(model, params, length, seed=3) for length in (100, 700))
    for few, many in zip(short, longer, strict=True):
        np.testing.assert_array_equal(few, many[:100])


def test_seeds_decide() -> None:
    one, two = simulate(MODEL, PARAMS, 500, seed=3), simulate(MODEL, PARAMS, 500, seed=4)
    assert (one[0] != two[0]).any() and (one[1] != two[1]).any()
    np.testing.assert_array_equal(one[1], simulate(MODEL, PARAMS, 500, seed=3)[1])


def test_first_states_have_the_initial_law() -> None:
    """Over many sequences; states alone, since each costs a whole block of observations."""
    initial, transition = np.array(PARAMS["initial"]), np.array(PARAMS["transition"])
    keys = jax.random.split(jax.random.key(0), 400)
    first = [whole_path(initial, transition, 1, key)[0] for key in keys]
    shares = np.bincount(first, minlength=K) / len(first)
    assert shares[0] == 0 and abs(shares[1] - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 400)


def test_several_sequences_are_independent() -> None:
    states, observations = simulate(MODEL, PARAMS, [300, 1, 300], seed=5)
    assert [len(part) for part in states] == [len(part) for part in observations] == [300, 1, 300]
    assert (states[0] != states[2]).any() and (observations[0] != observations[2]).any()


def test_rare_transitions_occur_as_often_as_they_should() -> None:
    """A probability of 2e-5 is met, neither lost nor inflated."""
    transition = np.array([[1 - 2e-5, 2e-5], [0.5, 0.5]])
    length = 40 * module.BLOCK
    states = whole_path(np.array([1.0, 0.0]), transition, length, jax.random.key(2))
    jumps, visits = np.sum((states[:-1] == 0) & (states[1:] == 1)), np.sum(states[:-1] == 0)
    expected = 2e-5 * visits
    assert abs(jumps - expected) < 5 * np.sqrt(expected)


def test_what_cannot_be_simulated() -> None:
    with pytest.raises(ModelError, match="length must be a whole number of at least 1, got 0"):
        simulate(MODEL, PARAMS, 0)
    with pytest.raises(ModelError, match="row sums"):
        simulate(MODEL, {**PARAMS, "transition": np.ones((K, K))}, 10)


def test_integers_stay_integers() -> None:
    model = HMM(2, Emission(dist.Poisson, rate=dist.Gamma(1.0, 1.0)))
    _, counts = simulate(model, {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}, 100)
    assert np.issubdtype(counts.dtype, np.integer) and counts.min() >= 0


@pytest.mark.slow
def test_twenty_million_draws_take_well_under_a_minute() -> None:
    n_states = 8
    rng = np.random.default_rng(0)
    params = {
        "transition": 0.9 * np.eye(n_states) + 0.1 / n_states,
        "mean": rng.normal(size=(n_states, 2)),
        "covariance": np.tile(np.eye(2), (n_states, 1, 1)),
    }
    began = time.perf_counter()
    states, observations = simulate(HMM(n_states, Gaussian(2)), params, 20_000_000)
    assert time.perf_counter() - began < 60
    assert len(states) == len(observations) == 20_000_000


@pytest.mark.parametrize("emission", ["one feature", "two features"])
def test_files_hold_what_arrays_hold(tmp_path, emission):
    model, params = rc() if emission == "two features" else lognormal()
    length = module.BLOCK + 5
    states, values = module.simulate(model, params, length, seed=4)
    module.simulate_to_file(model, params, length, tmp_path / "y.npy", states_file=tmp_path / "x.npy", seed=4)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").reshape(values.shape), values)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), states)
    with pytest.raises(ModelError, match="length must be a whole number of at least 1"):
        module.simulate_to_file(model, params, 0, tmp_path / "y.npy")
