"""Every recursion against the sum over all paths, over shapes, precisions and structural zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends.contrary import TRANSITIONS
from longhmm.inference import backward, forward, forward_backward
from longhmm.testing import enumerate_paths

# Compiled once for each shape, and not anew in every call.
backward_message = jax.jit(backward.backward_message)
filter_messages = jax.jit(forward.filter_messages)
smooth_messages = jax.jit(forward_backward.forward_backward)

CASES = [(1, 1, False), (1, 5, False), (2, 1, False), (2, 8, False), (3, 6, False), (4, 5, True), (5, 4, True)]
CASES += [(len(matrix), 6, name) for name, matrix in TRANSITIONS.items()]


def random_chain(seed, n_states, length, n_windows, zeros, spread=2.0):
    """`zeros`: some transitions are forbidden, or the matrix is the one of that name."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(n_states), size=n_states)
    if isinstance(zeros, str):
        transition = TRANSITIONS[zeros]
    elif zeros:
        mask = rng.random((n_states, n_states)) < 0.4
        np.fill_diagonal(mask, False)
        transition[mask] = 0.0
        transition /= transition.sum(1, keepdims=True)
    initial = rng.dirichlet(np.ones(n_states))
    log_likelihoods = spread * rng.normal(size=(length, n_states, n_windows))
    return initial, transition, log_likelihoods


def start_of_sequence(n_states, n_windows):
    return np.full((n_states, n_windows), -np.log(n_states)), np.ones(n_windows, bool)


@pytest.mark.parametrize("n_states, length, zeros", CASES)
@pytest.mark.parametrize("spread", [2.0, 300.0])
def test_every_recursion_against_all_paths(n_states, length, zeros, spread):
    n_windows = 3
    initial, transition, log_likelihoods = random_chain(
        n_states * 10 + length, n_states, length, n_windows, zeros, spread
    )
    before, at_start = start_of_sequence(n_states, n_windows)
    with jax.enable_x64(True):
        filtered = filter_messages(*map(jnp.asarray, (before, at_start, initial, transition, log_likelihoods)))
        smoothed = smooth_messages(
            jnp.asarray(before), jnp.zeros_like(before), jnp.asarray(at_start), jnp.asarray(initial),
            jnp.asarray(transition), jnp.asarray(log_likelihoods), jnp.ones((length, n_windows)),
        )  # fmt: skip
    filtered, smoothed = jax.tree.map(np.asarray, (filtered, smoothed))
    for w in range(n_windows):
        exact = enumerate_paths(initial, transition, log_likelihoods[:, :, w])
        np.testing.assert_allclose(filtered.log_normaliser[:, w].sum(), exact.log_likelihood, rtol=1e-12)
        np.testing.assert_allclose(np.exp(filtered.log_alpha[:, :, w]), exact.filtered, atol=1e-12)
        np.testing.assert_allclose(smoothed.log_normaliser[:, w].sum(), exact.log_likelihood, rtol=1e-12)
        np.testing.assert_allclose(smoothed.gamma[:, :, w], exact.gamma, atol=1e-12)
        np.testing.assert_allclose(smoothed.transitions[:, :, w], exact.xi.sum(0), atol=1e-12)
        assert smoothed.impossible_at[w] == -1 and filtered.impossible_at[w] == -1


def test_core_weights_and_boundary_messages_select_and_condition():
    """A window cut out of a longer sequence, with exact messages at both edges, gives the sequence's own answers."""
    n_states, length = 3, 8
    initial, transition, log_likelihoods = random_chain(5, n_states, length, 1, False)
    exact = enumerate_paths(initial, transition, log_likelihoods[:, :, 0])
    a, b = 2, 6
    after = np.ones(n_states)
    for t in range(length - 1, b - 1, -1):
        after = transition @ (np.exp(log_likelihoods[t, :, 0]) * after)
    core = np.zeros((b - a, 1))
    core[1:3] = 1
    with jax.enable_x64(True):
        smoothed = smooth_messages(
            jnp.log(exact.filtered[a - 1][:, None]), jnp.log(after[:, None]), jnp.zeros(1, bool),
            jnp.asarray(initial), jnp.asarray(transition), jnp.asarray(log_likelihoods[a:b]), jnp.asarray(core),
        )  # fmt: skip
    np.testing.assert_allclose(smoothed.gamma[:, :, 0], exact.gamma[a:b], atol=1e-13)
    np.testing.assert_allclose(smoothed.transitions[:, :, 0], exact.xi[a : a + 2].sum(0), atol=1e-13)
    np.testing.assert_allclose(np.exp(smoothed.log_leaving[:, 0]), exact.filtered[b - 1], atol=1e-13)
    # The message at the left edge, times the law there, is the smoothed law of the state before the window.
    joint = np.exp(np.asarray(smoothed.log_entering)[:, 0]) * exact.filtered[a - 1]
    np.testing.assert_allclose(joint / joint.sum(), exact.gamma[a - 1], atol=1e-13)


def test_first_core_time_without_buffer_has_its_transition():
    """With no buffer the transition into the first core time is still counted, from the law before the window."""
    n_states = 3
    initial, transition, log_likelihoods = random_chain(9, n_states, 4, 1, False)
    before = np.array([0.2, 0.5, 0.3])
    # Enumerate with one unobserved time in front whose law is `before`.
    padded = np.concatenate([np.zeros((1, n_states)), log_likelihoods[:, :, 0]])
    exact = enumerate_paths(before, transition, padded)
    with jax.enable_x64(True):
        smoothed = smooth_messages(
            jnp.log(before[:, None]), jnp.zeros((n_states, 1)), jnp.zeros(1, bool), jnp.asarray(initial),
            jnp.asarray(transition), jnp.asarray(log_likelihoods), jnp.ones((4, 1)),
        )  # fmt: skip
    np.testing.assert_allclose(smoothed.transitions[:, :, 0], exact.xi.sum(0), atol=1e-13)
    np.testing.assert_allclose(smoothed.gamma[:, :, 0], exact.gamma[1:], atol=1e-13)


@pytest.mark.parametrize("zeros", [False, True])
def test_backward_message_against_matrix_products(zeros):
    n_states, length = 4, 6
    _, transition, log_likelihoods = random_chain(33, n_states, length, 2, zeros)
    after = np.random.default_rng(1).random((n_states, 2)) + 0.1
    with jax.enable_x64(True):
        message = np.exp(backward_message(jnp.log(after), jnp.asarray(transition), jnp.asarray(log_likelihoods)))
    for w in range(2):
        expected = after[:, w]
        for t in reversed(range(length)):
            expected = transition @ (np.exp(log_likelihoods[t, :, w]) * expected)
        np.testing.assert_allclose(message[:, w], expected / expected.max(), rtol=1e-12)


@pytest.mark.parametrize("zeros", [False, True])
def test_a_backward_message_that_nothing_can_have_caused_is_minus_infinity(zeros):
    _, transition, log_likelihoods = random_chain(33, 4, 6, 2, zeros)
    log_likelihoods[3, :, 1] = -np.inf
    with jax.enable_x64(True):
        message = np.asarray(backward_message(jnp.zeros((4, 2)), jnp.asarray(transition), jnp.asarray(log_likelihoods)))
    assert np.isneginf(message[:, 1]).all()
    expected = np.ones(4)
    for t in reversed(range(6)):
        expected = transition @ (np.exp(log_likelihoods[t, :, 0]) * expected)
    np.testing.assert_allclose(np.exp(message[:, 0]), expected / expected.max(), rtol=1e-12)
