"""The reference backend: random numbers of rows, and rows that no state can have produced."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from longhmm.backends.protocol import TABLE
from longhmm.backends.reference import log_likelihoods, row_uniforms


def test_random_numbers_are_uniform_and_need_only_the_row() -> None:
    with jax.enable_x64(True):
        key = jax.random.key_data(jax.random.key(7))
        rows = jnp.arange(2**33 - 5000, 2**33 + 5000)
        found = np.asarray(row_uniforms(key, rows))
        np.testing.assert_array_equal(found[10:20], row_uniforms(key, rows[10:20]))
    assert found.min() >= 0 and found.max() < 1
    assert stats.chisquare(np.histogram(found, 20, (0, 1))[0]).pvalue > 1e-3
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.04


def test_what_is_no_category_is_impossible() -> None:
    with jax.enable_x64(True):
        logs = log_likelihoods(TABLE, 1, jnp.array([[0.0], [3.0], [-1.0], [np.nan]]), jnp.log(jnp.array([[0.3, 0.7]])))
    np.testing.assert_allclose(logs[:, 0], [np.log(0.3), -np.inf, -np.inf, 0.0])
