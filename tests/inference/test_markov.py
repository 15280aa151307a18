"""Facts about transition matrices that the sampler leans on."""

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.inference.markov import centred_counts


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
