"""A step of the complete recipe: its drift, and draws of its noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longhmm.samplers import langevin_moves as langevin

FACTORS = {"matrix": jnp.array([[1.0, 0.0], [0.4, 0.5]]), "diagonal": jnp.array([1.5, 0.7])}


def as_matrix(factor):
    return np.asarray(factor if factor.ndim == 2 else jnp.diag(factor), np.float64)


@pytest.mark.parametrize("form", FACTORS)
def test_the_drift_is_preconditioned(form):
    with jax.enable_x64(True):
        at, gradient, factor = jnp.array([0.3, -0.8]), jnp.array([1.0, -3.0]), FACTORS[form].astype(float)
        matrix = as_matrix(factor)
        with_drift, without = (
            langevin.step(jax.random.key(0), at, each, factor, 0.1)[0] for each in (gradient, 0 * at)
        )
        np.testing.assert_allclose(with_drift - without, 0.1 * matrix @ matrix.T @ gradient, rtol=1e-12)


@pytest.mark.parametrize("form", FACTORS)
@pytest.mark.parametrize("corrected", [False, True])
def test_noise_has_the_promised_covariance(form, corrected):
    size, factor = 0.4, FACTORS[form]
    whitened = jnp.array([[2.0, 0.6], [0.6, 3.0]]) if corrected else None
    matrix = as_matrix(factor)
    inner = 2 * size * np.eye(2) - (size**2 * np.asarray(whitened) if corrected else 0.0)
    expected = matrix @ inner @ matrix.T
    zero, keys = jnp.zeros(2), jax.random.split(jax.random.key(0), 40_000)
    moved, clipped = jax.vmap(lambda key: langevin.step(key, zero, zero, factor, size, whitened))(keys)
    assert float(clipped.max()) == 0.0
    np.testing.assert_allclose(np.cov(np.asarray(moved).T), expected, atol=0.02 * float(np.max(expected)))


def test_too_much_gradient_noise_is_clipped_and_reported():
    zero, noisy = jnp.zeros(2), jnp.diag(jnp.array([100.0, 0.0]))
    moved, clipped = langevin.step(jax.random.key(0), zero, zero, jnp.ones(2), 0.5, noisy)
    assert float(clipped) == 0.5
    assert float(moved[0]) == 0.0 and float(moved[1]) != 0.0


def test_chains_keep_a_normal_target():
    """Covariance S, `D = L L^T`: Euler steps of size h widen it by about h / 4 of the standard deviation."""
    covariance, factor, size = np.array([[1.0, 0.4], [0.4, 0.7]]), FACTORS["matrix"], 0.05
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)

    def one(x, key):
        x = langevin.step(key, x, -precision @ x, factor, size)[0]
        return x, x

    def chain(key):
        return jax.lax.scan(one, jnp.zeros(2), jax.random.split(key, 4000))[1]

    draws = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(4), 100)))[:, 400:].reshape(-1, 2)
    np.testing.assert_allclose(draws.mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(np.cov(draws.T), covariance, rtol=0.05)


def test_rounding_does_not_choose_the_noise():
    """Windows are fewer than parameters: most eigenvalues are equal, and their eigenvectors arbitrary."""
    rng = np.random.default_rng(0)
    few = rng.normal(size=(7, 2))
    covariance = jnp.asarray(np.eye(7) - 0.01 * few @ few.T, jnp.float32)
    rounding = jnp.asarray(1e-7 * rng.normal(size=(7, 7)), jnp.float32)
    draw, _ = langevin.normal_with(jax.random.key(1), covariance)
    again, _ = langevin.normal_with(jax.random.key(1), covariance + rounding + rounding.T)
    np.testing.assert_allclose(again, draw, atol=1e-5)
