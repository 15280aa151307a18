"""The Lyapunov gap against closed forms and against the contraction it claims to measure."""

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.inference import lyapunov, recursions

# Compiled once for each shape, and not anew in every call.
filtered = jax.jit(recursions.filtered)
log_contractions = jax.jit(lyapunov.log_contractions)


def test_uninformative_emissions_give_the_second_eigenvalue():
    rng = np.random.default_rng(0)
    for n_states in (2, 3, 6):
        base = rng.dirichlet(np.ones(n_states), size=n_states)
        transition = 0.5 * (base + base.T) + 0.5 * np.eye(n_states)  # symmetric before scaling: real eigenvalues
        transition /= transition.sum(1, keepdims=True)
        moduli = np.sort(np.abs(np.linalg.eigvals(transition)))[::-1]
        with jax.enable_x64(True):
            ratios = np.asarray(log_contractions(jnp.asarray(transition), jnp.zeros((600, n_states, 1))))
        np.testing.assert_allclose(ratios[-200:].mean(), np.log(moduli[1]), rtol=2e-3)


def test_two_states_have_a_closed_form():
    """K = 2: the gap is log |det A| + mean_t sum_k log p(y_t | k) - 2 loglik / T."""
    rng = np.random.default_rng(1)
    transition = np.array([[0.95, 0.05], [0.1, 0.9]])
    length = 20_000
    states = np.zeros(length, int)
    for t in range(1, length):
        states[t] = rng.random() < transition[states[t - 1], 1]
    y = rng.normal(states * 1.0)
    log_likelihoods = -0.5 * (y[:, None] - np.array([0.0, 1.0])) ** 2
    with jax.enable_x64(True):
        ratios = log_contractions(jnp.asarray(transition), jnp.asarray(log_likelihoods[:, :, None]))
        steps = (jnp.asarray(transition), jnp.asarray(log_likelihoods[:, :, None]), jnp.full(2, 0.5), jnp.ones(1, bool))
        found = filtered(jnp.full((2, 1), np.log(0.5)), recursions.Steps(*steps))
    expected = (
        np.log(np.linalg.det(transition))
        + log_likelihoods.sum(1).mean()
        - 2 * np.asarray(found.log_normaliser).sum() / length
    )
    np.testing.assert_allclose(np.asarray(ratios).mean(), expected, rtol=1e-3)


def test_two_messages_meet_at_the_measured_rate():
    rng = np.random.default_rng(2)
    n_states, length = 4, 400
    transition = 0.7 * np.eye(n_states) + 0.3 * rng.dirichlet(np.ones(n_states), size=n_states)
    log_likelihoods = np.repeat(0.5 * rng.normal(size=(length, n_states, 1)), 2, axis=2)
    before = np.stack([[0.97, 0.01, 0.01, 0.01], [0.01, 0.01, 0.01, 0.97]], axis=1)
    with jax.enable_x64(True):
        initial, starts = jnp.full(n_states, 0.25), jnp.zeros(2, bool)
        steps = recursions.Steps(jnp.asarray(transition), jnp.asarray(log_likelihoods), initial, starts)
        found = filtered(jnp.log(before), steps)
        ratios = np.asarray(log_contractions(jnp.asarray(transition), jnp.asarray(log_likelihoods[:, :, :1])))[:, 0]
    distance = np.log(np.abs(np.diff(np.exp(found.log_forward[1:62]), axis=2)).sum(1))[:, 0]
    start, stop = 5, 60  # before rounding hides the difference
    assert distance[stop] > np.log(1e-13)
    np.testing.assert_allclose(
        (distance[stop] - distance[start]) / (stop - start), ratios[start + 1 : stop + 1].mean(), atol=0.03
    )


def test_well_separated_emissions_do_not_underflow():
    rng = np.random.default_rng(3)
    transition = np.full((3, 3), 0.0005) + 0.9985 * np.eye(3)
    y = rng.normal(size=500) + 100 * np.repeat([0, 1, 2, 0, 1], 100)
    log_likelihoods = -0.5 * (y[:, None] - 100.0 * np.arange(3)) ** 2
    ratios = np.asarray(
        log_contractions(jnp.asarray(transition, jnp.float32), jnp.asarray(log_likelihoods[:, :, None], jnp.float32))
    )
    assert np.isfinite(ratios).all() and ratios.mean() < -7
