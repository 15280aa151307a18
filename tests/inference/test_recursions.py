"""Every recursion against the sum over all paths, over shapes, precisions and structural zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends.contrary import TRANSITIONS
from longhmm.inference import recursions
from longhmm.inference.recursions import Steps
from longhmm.testing import enumerate_paths

# Compiled once for each shape, and not anew in every call.
filtered_messages = jax.jit(recursions.filtered)
smoothed_messages = jax.jit(recursions.smoothed)

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
        steps = Steps(*map(jnp.asarray, (transition, log_likelihoods, initial, at_start)))
        filtered = filtered_messages(jnp.asarray(before), steps)
        smoothed = smoothed_messages(
            jnp.asarray(before), jnp.zeros_like(before), steps, jnp.ones((length, n_windows), bool)
        )
    filtered, smoothed = jax.tree.map(np.asarray, (filtered, smoothed))
    for w in range(n_windows):
        exact = enumerate_paths(initial, transition, log_likelihoods[:, :, w])
        np.testing.assert_allclose(filtered.log_normaliser[:, w].sum(), exact.log_likelihood, rtol=1e-12)
        np.testing.assert_allclose(np.exp(filtered.log_forward[1:, :, w]), exact.filtered, atol=1e-12)
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
        steps = Steps(*map(jnp.asarray, (transition, log_likelihoods[a:b], initial, np.zeros(1, bool))))
        smoothed = smoothed_messages(
            jnp.log(exact.filtered[a - 1][:, None]), jnp.log(after[:, None]), steps, jnp.asarray(core)
        )
    np.testing.assert_allclose(smoothed.gamma[:, :, 0], exact.gamma[a:b], atol=1e-13)
    np.testing.assert_allclose(smoothed.transitions[:, :, 0], exact.xi[a : a + 2].sum(0), atol=1e-13)
    np.testing.assert_allclose(np.exp(smoothed.log_forward[-1, :, 0]), exact.filtered[b - 1], atol=1e-13)
    # The message at the left edge, times the law there, is the smoothed law of the state before the window.
    joint = np.exp(np.asarray(smoothed.log_backward)[0, :, 0]) * exact.filtered[a - 1]
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
        steps = Steps(*map(jnp.asarray, (transition, log_likelihoods, initial, np.zeros(1, bool))))
        smoothed = smoothed_messages(jnp.log(before[:, None]), jnp.zeros((n_states, 1)), steps, jnp.ones((4, 1), bool))
    np.testing.assert_allclose(smoothed.transitions[:, :, 0], exact.xi.sum(0), atol=1e-13)
    np.testing.assert_allclose(smoothed.gamma[:, :, 0], exact.gamma[1:], atol=1e-13)


@pytest.mark.parametrize("zeros", [False, True])
def test_backward_messages_against_matrix_products(zeros):
    n_states, length = 4, 6
    initial, transition, log_likelihoods = random_chain(33, n_states, length, 2, zeros)
    after = np.random.default_rng(1).random((n_states, 2)) + 0.1
    with jax.enable_x64(True):
        steps = Steps(*map(jnp.asarray, (transition, log_likelihoods, initial, np.zeros(2, bool))))
        before = jnp.full((n_states, 2), -np.log(n_states))
        found = smoothed_messages(before, jnp.log(after), steps, jnp.ones((length, 2), bool))
        message = np.exp(np.asarray(found.log_backward[0]))
    for w in range(2):
        expected = after[:, w]
        for t in reversed(range(length)):
            expected = transition @ (np.exp(log_likelihoods[t, :, w]) * expected)
        np.testing.assert_allclose(message[:, w] / message[:, w].max(), expected / expected.max(), rtol=1e-12)


@pytest.mark.parametrize("spread", [2.0, 300.0])
@pytest.mark.parametrize("pairs", [False, True])
def test_matrices_that_vary_and_likelihoods_of_pairs_against_operators_and_all_paths(pairs, spread):
    """The sum over all paths of one operator per row, linear numbers and log space alike."""
    n_states, length = 3, 5
    rng = np.random.default_rng(8)
    matrices = rng.dirichlet(np.ones(n_states), size=(length, 1, n_states)).transpose(0, 2, 3, 1)
    matrices[2, 0, 1] = 0.0
    initial = rng.dirichlet(np.ones(n_states))
    shape = (length, n_states, n_states, 1) if pairs else (length, n_states, 1)
    logs = spread * rng.normal(size=shape)
    with np.errstate(divide="ignore"):
        operators = np.log(matrices[..., 0]) + (logs[..., 0] if pairs else logs[:, None, :, 0])
        first = np.log(initial)
    weights = {}
    for path in np.ndindex(*[n_states] * (length + 1)):  # the state before the first row, then those of rows
        steps_in = operators if pairs else operators[1:]
        states = path if pairs else path[1:]
        if not pairs and path[0]:
            continue  # there is none before the first row
        begin = first[states[0]] + (0.0 if pairs else logs[0, states[0], 0])
        weights[path] = begin + sum(steps_in[t][states[t], states[t + 1]] for t in range(len(states) - 1))
    total = np.logaddexp.reduce(list(weights.values()))
    gamma, xi = np.zeros((length, n_states)), np.zeros((length, n_states, n_states))
    for path, weight in weights.items():
        probability = np.exp(weight - total)
        for t in range(length):
            gamma[t, path[t + 1]] += probability
            if pairs or t:
                xi[t, path[t], path[t + 1]] += probability
    with jax.enable_x64(True):
        steps = Steps(*map(jnp.asarray, (matrices, logs, initial, np.ones(1, bool))))
        before = jnp.full((n_states, 1), -np.log(n_states))
        found = smoothed_messages(before, jnp.zeros((n_states, 1)), steps, jnp.ones((length, 1), bool))
        alone = filtered_messages(before, steps)
    found, alone = jax.tree.map(np.asarray, (found, alone))
    np.testing.assert_allclose(np.sum(found.log_normaliser), total, rtol=1e-12)
    np.testing.assert_allclose(np.sum(alone.log_normaliser), total, rtol=1e-12)
    np.testing.assert_allclose(found.gamma[:, :, 0], gamma, atol=1e-12)
    np.testing.assert_allclose(found.pairs[..., 0], xi, atol=1e-12)
    np.testing.assert_allclose(found.transitions[..., 0], xi.sum(0), atol=1e-12)
