"""Facts about transition matrices that the sampler leans on."""

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.inference.markov import centred_counts, mixing_time, stationary


def test_the_excess_of_common_transitions_leaves_no_rounding_for_rare_ones():
    """In single precision, with counts of fifty: as precise as the counts themselves, not as their sum."""
    rng = np.random.default_rng(0)
    rows = np.full((6, 8), 3e-7)
    rows[:, 0], rows[:, 1] = 0.01, 0.99 - 6 * 3e-7
    counts = 50 * rows * rng.uniform(0.5, 2, size=rows.shape)
    narrow = rows.astype(np.float32), counts.astype(np.float32)
    wide = [each.astype(np.float64) for each in narrow]
    wide[0] /= wide[0].sum(axis=1, keepdims=True)
    exact = wide[1] - wide[0] * wide[1].sum(axis=1, keepdims=True)
    found = np.asarray(centred_counts(jnp.asarray(narrow[1]), jnp.asarray(narrow[0])))
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() < 4 * np.finfo(np.float32).eps * counts[:, 0].max()
    assert np.abs(narrow[1] - narrow[0] * narrow[1].sum(axis=1, keepdims=True) - exact).max() > 1e-6, "the plain way"
    np.testing.assert_allclose(found[:, 2:], exact[:, 2:], rtol=1e-4)


def test_excess_is_what_it_says():
    rng = np.random.default_rng(1)
    rows, counts = rng.dirichlet(np.ones(4), size=4), rng.exponential(size=(4, 4))
    rows[0, 2], counts[0, 2] = 0.0, 0.0
    rows /= rows.sum(axis=1, keepdims=True)
    with jax.enable_x64(True):
        found = np.asarray(centred_counts(jnp.asarray(counts), jnp.asarray(rows)))
    np.testing.assert_allclose(found, counts - rows * counts.sum(axis=1, keepdims=True), atol=1e-14)
    np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-14)


def test_stationary_law_and_mixing_time():
    rng = np.random.default_rng(1)
    transition = rng.dirichlet(np.ones(5), size=5)
    with jax.enable_x64(True):
        law = np.asarray(stationary(jnp.asarray(transition)))
        reducible = np.asarray(stationary(jnp.eye(4)))
        slope = np.asarray(jax.jacobian(stationary)(jnp.asarray(transition)))
    np.testing.assert_allclose(law @ transition, law, atol=1e-13)
    np.testing.assert_allclose(law.sum(), 1.0)
    np.testing.assert_allclose(reducible, 0.25, atol=1e-3)
    # Finite differences along a direction that keeps rows summing to one.
    direction = np.zeros((5, 5))
    direction[2, 0], direction[2, 3] = 1e-6, -1e-6
    with jax.enable_x64(True):
        moved = [np.asarray(stationary(jnp.asarray(transition + sign * direction))) for sign in (1, -1)]
    np.testing.assert_allclose(slope[:, 2, 0] - slope[:, 2, 3], (moved[0] - moved[1]) / 2e-6, rtol=1e-6, atol=1e-9)
    # Single precision and a chain that hardly moves: exact in every entry.
    for rate in (1e-4, 1e-6):
        slow = jnp.asarray([[1 - rate, rate], [4 * rate, 1 - 4 * rate]], jnp.float32)
        np.testing.assert_allclose(stationary(slow), [0.8, 0.2], rtol=1e-5)
    assert mixing_time(np.ones((1, 1))) == 1.0
    np.testing.assert_allclose(mixing_time(np.array([[0.9, 0.1], [0.1, 0.9]])), 5.0)
    assert mixing_time(np.array([[0.0, 1.0], [1.0, 0.0]])) == 1e6  # periodic: the modulus is one, so it is capped
