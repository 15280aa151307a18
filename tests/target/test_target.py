"""The exact gradient against finite differences of the log likelihood, the prior and the Jacobian."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longhmm as lh
from longhmm.backends.evaluate import Statistics
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.inference.markov import centred_counts
from longhmm.model import hmm
from longhmm.target.coordinates import score
from model.configurations import named, names, observations
from target.references import Coordinates, differences, flat, forward_log_likelihood, normal_logs, normal_model
from target.structured import PARAMS, PRIOR, STRUCTURED, random_transition

LENGTHS = [1, 9, 14]
# One of every kind; the others take minutes to compile.
FAST = {"gaussian-full-2d", "student-t", "tied", "support-differs-by-state", "user-subclass"}


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in names()]
)
def test_every_emission_against_finite_differences(name: str) -> None:
    """Ragged sequences, missing rows, partly missing rows and known states, for every emission of the table."""
    configuration = named(name)
    model = lh.HMM(configuration.n_states, configuration.emission)
    truth, y = observations(configuration)
    y[[3, 20]] = np.nan
    y[11, 0] = np.nan  # the rest of the row stays, where there is one
    states = np.full(len(y), -1)
    states[[7, 13]] = truth[[7, 13]]
    data = open_data(y, states=states, lengths=LENGTHS)
    params = {"transition": random_transition(configuration.n_states), **configuration.params}
    space = Coordinates(model, params)

    def log_posterior(vector: np.ndarray) -> float:
        return lh.log_likelihood(model, space.to_natural(vector), data) + space.log_prior(vector)

    found = lh.gradient(model, params, data)
    assert sorted(found) == sorted(lh.unconstrain(model, params))
    np.testing.assert_allclose(flat(found), differences(log_posterior, space.vector), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("emission", "params"),
    [
        (lh.Gaussian(), {"mean": [1.0, 4.0], "sd": [1.0, 2.0]}),
        (lh.LogNormal(), {"loc": [0.5, 1.5], "scale": [0.5, 0.7]}),
        (lh.Poisson(), {"rate": [1.0, 6.0]}),
    ],
)
def test_data_that_were_changed_in_place_are_looked_at_again(emission: lh.Emission, params: dict) -> None:
    """Nothing that was made of an array, priors on its scale among them, outlives a call; not even where values of the
    same mean, spread and range take the place of others, so that only quantiles differ."""
    model, params = lh.HMM(2, emission), {"transition": [[0.8, 0.2], [0.3, 0.7]], **params}
    y = np.tile([1.0, 10.0, 2.0, 5.0, 7.0, 8.0], 300)
    inner, middles = np.arange(len(y)) % 6 > 1, ((2, 5, 7, 8), (3, 4, 6, 9), (2, 5, 7, 80))
    expected = []
    for middle in middles:  # each as if it were the first
        hmm._scaled.cache_clear()
        own = y.copy()
        own[inner] = np.tile(middle, 300)
        expected.append((flat(lh.gradient(model, params, own)), lh.log_likelihood(model, params, own)))
    assert all(np.abs(expected[i][0] - expected[i - 1][0]).max() > 0.01 for i in range(3))
    hmm._scaled.cache_clear()
    for middle, (slope, value) in zip(middles, expected, strict=True):
        y[inner] = np.tile(middle, 300)
        np.testing.assert_array_equal(flat(lh.gradient(model, params, y)), slope)
        assert lh.log_likelihood(model, params, y) == value


# Structure: one model with a forbidden transition, a fixed row and a stationary initial law -------------------------

Y = np.random.default_rng(5).normal(size=sum(LENGTHS)) * 2
Y[[2, 15]] = np.nan


def reference(space: Coordinates, initial: np.ndarray | None = None, prior: bool = True) -> np.ndarray:
    def value(vector: np.ndarray) -> float:
        natural = space.to_natural(vector)
        law = natural["initial"] if initial is None else initial
        total = forward_log_likelihood(law, natural["transition"], normal_logs(natural["loc"], Y), LENGTHS)
        return total + space.log_prior(vector) if prior else total

    return differences(value, space.vector)


def test_forbidden_transitions_fixed_rows_and_a_stationary_start() -> None:
    space = Coordinates(STRUCTURED, PARAMS)
    assert len(space.vector) == 2 + 1 + 3  # row 0 has two, row 1 none, row 2 one; three means
    found = lh.gradient(STRUCTURED, PARAMS, open_data(Y, lengths=LENGTHS))
    np.testing.assert_allclose(flat(found), reference(space), rtol=1e-8, atol=1e-8)


def test_without_the_prior() -> None:
    space = Coordinates(STRUCTURED, PARAMS)
    found = lh.gradient(STRUCTURED, PARAMS, open_data(Y, lengths=LENGTHS), prior=False)
    np.testing.assert_allclose(flat(found), reference(space, prior=False), rtol=1e-8, atol=1e-8)


def test_an_initial_law_in_the_parameters_is_held_constant() -> None:
    given = np.array([0.1, 0.8, 0.1])
    space = Coordinates(STRUCTURED, PARAMS)
    data = open_data(Y, lengths=LENGTHS)
    found = flat(lh.gradient(STRUCTURED, {**PARAMS, "initial": given}, data))
    np.testing.assert_allclose(found, reference(space, given), rtol=1e-8, atol=1e-8)
    own = flat(lh.gradient(STRUCTURED, PARAMS, data))
    assert np.abs(found - own)[3:].max() > 1e-2  # the two do differ


def test_the_stationary_law_s_own_derivative_is_part_of_the_gradient() -> None:
    """The same law as a constant gives the same means' slopes and other slopes of the transitions."""
    data = open_data(Y, lengths=LENGTHS)
    law = np.linalg.matrix_power(np.array(PARAMS["transition"]), 4096)[0]
    constant = normal_model(3, transition_prior=PRIOR, fixed_rows={1: [0.2, 0.7, 0.1]}, initial=law)
    moving, held = (lh.gradient(model, PARAMS, data, prior=False) for model in (STRUCTURED, constant))
    np.testing.assert_allclose(moving["loc"], held["loc"], rtol=1e-9)
    np.testing.assert_allclose(flat(held), reference(Coordinates(STRUCTURED, PARAMS), law, False), rtol=1e-7, atol=1e-8)
    assert np.abs(moving["transition"] - held["transition"]).max() > 1e-2


def test_one_state_has_no_transitions_to_learn() -> None:
    model = normal_model(1)
    found = lh.gradient(model, {"transition": [[1.0]], "loc": [0.7]}, open_data(Y, lengths=LENGTHS), prior=False)
    assert found["transition"].shape == (0,)
    np.testing.assert_allclose(found["loc"], [np.nansum(Y - 0.7)], rtol=1e-12)


def test_a_zero_where_a_transition_is_allowed_is_refused() -> None:
    params = {"transition": [[1.0, 0.0], [0.5, 0.5]], "loc": [0.0, 1.0]}
    with pytest.raises(ModelError, match="from state 0 to state 1"):
        lh.gradient(normal_model(2), params, Y)


# Prior and Jacobian on their own -----------------------------------------------------------------------------------


def test_single_precision_scores_keep_transitions_that_are_never_seen():
    """Counts of fifty that cancel must not drown a score of a hundred thousandth."""
    model = lh.HMM(4, lh.Poisson())
    rows = np.array([[0.99 - 6e-7, 0.01, 3e-7, 3e-7]] * 4)
    params = {"transition": rows, "rate": np.arange(1.0, 5.0)}
    counts = 50 * rows * np.array([1.3, 0.7, 0.5, 0.1])

    def scored(kind):
        with jax.enable_x64(kind == np.float64):
            at = {name: np.asarray(value, kind) for name, value in coordinates.items()}
            seen, zeros = counts.astype(kind), np.zeros(4, kind)
            centred = centred_counts(jnp.asarray(seen), model.transitions.constrain(jnp.asarray(at["transition"])))
            made = Statistics(kind(0.0), zeros, seen, centred, {"rate": zeros})
            return np.asarray(score(model, at, made)["transition"], np.float64)

    coordinates = {name: np.asarray(value, np.float32) for name, value in lh.unconstrain(model, params).items()}
    np.testing.assert_allclose(scored(np.float32), scored(np.float64), atol=3e-7)
