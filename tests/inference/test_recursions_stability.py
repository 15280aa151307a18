"""The recursions hold where naive ones break: huge distances, forbidden transitions, impossible data, many steps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends.contrary import TRANSITIONS, TURNS, cases, contrary
from backends.references import log, log_sum
from longhmm.inference import recursions
from longhmm.inference.recursions import Steps
from longhmm.testing import enumerate_paths

# Compiled once for each shape, and not anew in every call.
filtered_messages = jax.jit(recursions.filtered)
smoothed_messages = jax.jit(partial(recursions.smoothed, messages=True))


def chunks(initial, transition, log_likelihoods, dtype, at_start=True):
    starts = jnp.full(log_likelihoods.shape[-1], at_start)
    return Steps(*(jnp.asarray(each, dtype) for each in (transition, log_likelihoods, initial)), starts)


def smooth(initial, transition, log_likelihoods, dtype, at_start=True):
    length, n_states, n_windows = log_likelihoods.shape
    with jax.enable_x64(dtype == np.float64):
        smoothed = smoothed_messages(
            jnp.full((n_states, n_windows), -np.log(n_states), dtype),
            jnp.zeros((n_states, n_windows), dtype),
            chunks(initial, transition, log_likelihoods, dtype, at_start),
            jnp.ones((length, n_windows), bool),
        )
        return jax.tree.map(np.asarray, smoothed)


def leaving(chain):
    """The logarithm of the filtered law at the last time."""
    law = log(chain.initial) + chain.logs[0]
    for row in chain.logs[1:]:
        law = log_sum(law[:, None] + log(chain.transition), 0) + row
    return law - log_sum(law, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_path_lost_to_underflow_is_found_again(dtype):
    """A left-to-right chain: state 1 seems hopeless early, yet only it explains what comes later, little by little."""
    transition = np.array([[1.0, 0.0], [0.0, 1.0]])
    initial = np.array([0.5, 0.5])
    step = 60.0 if dtype == np.float32 else 400.0
    log_likelihoods = np.zeros((7, 2, 3))
    log_likelihoods[:3, 1] = -step
    log_likelihoods[3:, 0] = -step
    exact = enumerate_paths(initial, transition, log_likelihoods[:, :, 0])
    assert exact.gamma[0, 1] > 0.999
    smoothed = smooth(initial, transition, log_likelihoods, dtype)
    np.testing.assert_allclose(smoothed.gamma[:, :, 0], exact.gamma, atol=1e-6)
    np.testing.assert_allclose(smoothed.transitions[:, :, 0], exact.xi.sum(0), atol=1e-5)
    with jax.enable_x64(dtype == np.float64):
        steps = chunks(initial, transition, log_likelihoods, dtype)
        filtered = filtered_messages(jnp.full((2, 3), np.log(0.5), dtype), steps)
    np.testing.assert_allclose(np.asarray(filtered.log_normaliser).sum(0), exact.log_likelihood, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "turns"), cases(TURNS))
def test_evidence_that_turns_over_hundreds_of_rows(name, turns, dtype):
    """Forward, backward and both, against a plain recursion on logarithms; one window of three says nothing."""
    made = contrary(TRANSITIONS[name].astype(dtype).astype(np.float64), TURNS[turns])
    initial, transition, logs = made
    exact = made.answers()
    stacked = np.stack([logs, np.zeros_like(logs), logs], axis=2)
    tolerance = {"rtol": 1e-5, "atol": 2e-3} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-9}
    smoothed = smooth(initial, transition, stacked, dtype)
    np.testing.assert_allclose(smoothed.gamma[:, :, 2], exact.gamma, **tolerance)
    np.testing.assert_allclose(smoothed.transitions[:, :, 0], exact.transitions, **tolerance)
    np.testing.assert_allclose(smoothed.log_normaliser[:, 0].sum(), exact.log_likelihood, **tolerance)
    # However small, what leaves the window is what a recursion on logarithms says.
    np.testing.assert_allclose(smoothed.log_forward[-1, :, 0], leaving(made), **tolerance)
    with jax.enable_x64(dtype == np.float64):
        steps = chunks(initial, transition, stacked, dtype)
        filtered = filtered_messages(jnp.zeros((len(initial), 3), dtype), steps)
    np.testing.assert_allclose(np.exp(filtered.log_forward)[1:, :, 0], exact.filtered, **tolerance)
    np.testing.assert_allclose(np.asarray(filtered.log_normaliser)[:, 0].sum(), exact.log_likelihood, **tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_emissions_500_standard_deviations_away(dtype):
    rng = np.random.default_rng(0)
    means, transition = np.array([0.0, 500.0, -500.0]), rng.dirichlet(np.ones(3), size=3)
    y = np.array([0.0, 501.0, -499.0, 250.0, 1000.0, -0.5])
    log_likelihoods = (-0.5 * (y[:, None] - means) ** 2)[:, :, None]
    exact = enumerate_paths(np.full(3, 1 / 3), transition, log_likelihoods[:, :, 0])
    smoothed = smooth(np.full(3, 1 / 3), transition, log_likelihoods, dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(smoothed.gamma[:, :, 0], exact.gamma, atol=tolerance)
    np.testing.assert_allclose(smoothed.log_normaliser.sum(), exact.log_likelihood, rtol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_impossible_observation_is_named_and_leaves_other_windows_alone(dtype):
    transition = np.array([[1.0, 0.0], [0.0, 1.0]])
    log_likelihoods = np.zeros((7, 2, 3))
    log_likelihoods[0, 1, :] = -np.inf  # the chain must start, hence stay, in state 0
    log_likelihoods[3, 0, 1] = -np.inf  # which cannot have produced this
    log_likelihoods[2, :, 2] = -np.inf  # and nothing can have produced this
    smoothed = smooth(np.array([0.5, 0.5]), transition, log_likelihoods, dtype)
    np.testing.assert_array_equal(smoothed.impossible_at, [-1, 3, 2])
    log_likelihood = np.asarray(smoothed.log_normaliser).sum(0)
    np.testing.assert_allclose(log_likelihood[0], np.log(0.5), rtol=1e-6)
    assert np.isneginf(log_likelihood[1:]).all()
    assert not np.isnan(smoothed.gamma).any() and not np.isnan(smoothed.transitions).any()


@pytest.mark.parametrize(
    "n_states, dtype",
    [(1, np.float64), (2, np.float32), (7, np.float64), (16, np.float32), (17, np.float32), (64, np.float64)],
)
def test_posteriors_sum_to_one_for_any_number_of_states(n_states, dtype):
    rng = np.random.default_rng(n_states)
    transition = rng.dirichlet(np.ones(n_states), size=n_states)
    log_likelihoods = 5 * rng.normal(size=(40, n_states, 3))
    smoothed = smooth(np.full(n_states, 1 / n_states), transition, log_likelihoods, dtype)
    tolerance = 2e-4 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(np.asarray(smoothed.gamma).sum(1), 1.0, atol=tolerance)
    np.testing.assert_allclose(np.asarray(smoothed.transitions).sum((0, 1)), 39.0, rtol=tolerance)
    # Leaving each state as often as it is occupied, all times but the last (and the transition rows of gamma).
    np.testing.assert_allclose(
        np.asarray(smoothed.transitions).sum(1), np.asarray(smoothed.gamma)[:-1].sum(0), atol=40 * tolerance
    )


def test_gradients_through_the_recursion_are_finite_and_right():
    """Automatic differentiation through the log likelihood equals expected counts over probabilities."""
    rng = np.random.default_rng(3)
    transition = rng.dirichlet(np.ones(3), size=3)
    log_likelihoods = rng.normal(size=(12, 3, 1))
    smoothed = smooth(np.full(3, 1 / 3), transition, log_likelihoods, np.float64)

    with jax.enable_x64(True):

        def log_likelihood(matrix):
            steps = Steps(matrix, jnp.asarray(log_likelihoods), jnp.full(3, 1 / 3), jnp.ones(1, bool))
            return filtered_messages(jnp.full((3, 1), np.log(1 / 3)), steps).log_normaliser.sum()

        derivative = jax.grad(log_likelihood)(jnp.asarray(transition))
    np.testing.assert_allclose(derivative, smoothed.transitions[:, :, 0] / transition, rtol=1e-10)
