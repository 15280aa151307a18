"""Pieces of recursions where numbers are zero, infinite or tiny, against plain NumPy and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from longhmm.inference import scaling

RNG = np.random.default_rng(0)


def test_logarithms_of_zero_have_no_slope():
    values = jnp.asarray([0.0, 1.0, 2.0])
    np.testing.assert_allclose(scaling.safe_log(values), [-np.inf, 0.0, np.log(2.0)], rtol=1e-6)
    slope = jax.grad(lambda at: jnp.sum(jnp.where(jnp.isneginf(scaling.safe_log(at)), 0.0, scaling.safe_log(at))))
    np.testing.assert_allclose(slope(values), [0.0, 1.0, 0.5])


def test_sums_of_exponentials():
    with jax.enable_x64(True):
        values = RNG.normal(0.0, 400.0, (5, 4))
        values[2] = -np.inf
        np.testing.assert_allclose(scaling.log_sum_exp(jnp.asarray(values), 1), logsumexp(values, axis=1), rtol=1e-13)
        assert np.isfinite(jax.grad(lambda at: scaling.log_sum_exp(at, 1)[0])(jnp.asarray(values))).all()


def test_peaks_are_taken_out_of_likelihoods_and_messages():
    logs = np.array([[[-1000.0, 3.0], [-1001.0, -np.inf]], [[-np.inf, 0.0], [-np.inf, -2.0]]])  # (time, K, W)
    scaled, peak = scaling.peak_scaled(jnp.asarray(logs))
    np.testing.assert_allclose(peak, [[-1000.0, 3.0], [0.0, 0.0]])
    np.testing.assert_allclose(scaled, [[[1, 1], [np.exp(-1.0), 0]], [[0, 1], [0, np.exp(-2.0)]]], rtol=1e-6)
    moved = scaling.at_zero(jnp.asarray([[-5.0, -np.inf], [-7.0, -np.inf]]))
    np.testing.assert_allclose(moved, [[0.0, -np.inf], [-2.0, -np.inf]])


@pytest.mark.parametrize("columns", [3, scaling.FUSED + 1])
def test_products_of_every_size(columns):
    matrix, vector = RNG.normal(size=(2, 5, columns)), RNG.normal(size=(2, columns))
    with jax.enable_x64(True):
        found = scaling.product(jnp.asarray(matrix), jnp.asarray(vector))
    np.testing.assert_allclose(found, (matrix @ vector[..., None])[..., 0], rtol=1e-12)


def test_what_a_normaliser_must_exceed():
    matrix = jnp.asarray([[0.5, 0.5], [0.25, 0.75]], jnp.float32)
    limits = np.finfo(np.float32)
    assert float(scaling.least_normaliser(matrix, 10)) == pytest.approx(80 * limits.tiny / limits.eps / 0.25, rel=1e-5)
    assert np.isinf(scaling.least_normaliser(jnp.asarray([[1.0, 0.0], [0.5, 0.5]]), 10))


def test_weighted_sums_keep_double_precision():
    parts = jnp.asarray([1.0, 1e-9, 1.0], jnp.float32)
    found = jax.jit(scaling.weighted_sum)(np.array([1.0, 1.0, -1.0]), parts)
    assert found.dtype == np.float64 and float(found) == pytest.approx(1e-9, rel=1e-5)
