"""The complete recipe keeps its target: checked by quadrature of the generator, by draws of the noise, by a chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longhmm.samplers import recipe

COVARIANCE = np.array([[1.0, 0.4], [0.4, 0.7]])
PRECISION = np.linalg.inv(COVARIANCE)


SKEW = np.array([[0.0, -0.7], [0.7, 0.0]])


def diffusion(theta):
    """The diagonal of D: positive, each entry a function of its own coordinate."""
    return jnp.stack([1.0 + 0.3 * jnp.sin(theta[0]), 0.8 + 0.5 * theta[1] ** 2])


def curl(vector):
    return jnp.asarray(SKEW) @ vector


def slope(theta):
    return -jnp.asarray(PRECISION) @ theta


TESTS = [
    lambda x: x[0],
    lambda x: x[1],
    lambda x: x[0] ** 2,
    lambda x: x[0] * x[1],
    lambda x: jnp.sin(x[1]) + x[0] ** 3,
]


def generator_means(sign):
    """`E[L f]` under the normal target, with L f = drift . grad f + tr(D hess f); 0 where the target is kept."""
    rule = recipe.Diagonal(diffusion, curl)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2) @ np.linalg.cholesky(COVARIANCE).T
    joint = np.outer(weights, weights).ravel()

    def generator(f, x):
        drift = rule.drift(x, slope(x)) + (sign - 1.0) * rule.correction(x)
        return drift @ jax.grad(f)(x) + jnp.sum(diffusion(x) * jnp.diagonal(jax.hessian(f)(x)))

    with jax.enable_x64(True):
        points = jnp.asarray(grid)
        return np.array([joint @ np.asarray(jax.vmap(lambda x, f=f: generator(f, x))(points)) for f in TESTS])


def test_generator_averages_to_zero_under_the_target():
    np.testing.assert_allclose(generator_means(+1.0), 0.0, atol=1e-9)


def test_the_printed_sign_of_the_correction_does_not_keep_the_target():
    assert np.abs(generator_means(-1.0)).max() > 0.3


def test_correction_and_drift_against_finite_differences():
    """`Gamma_i = sum_j d_j (D_ij + Q_ij)` and `(D + Q) gradient`, with the matrices written out."""
    with jax.enable_x64(True):
        at, gradient, eps = jnp.array([0.3, -0.8]), jnp.array([1.0, -3.0]), 1e-5

        def both(theta):
            return jnp.diag(diffusion(theta)) + SKEW

        expected = sum((both(at + eps * e) - both(at - eps * e))[:, j] for j, e in enumerate(jnp.eye(2))) / (2 * eps)
        rule = recipe.Diagonal(diffusion, curl)
        np.testing.assert_allclose(rule.correction(at), expected, atol=1e-8)
        np.testing.assert_allclose(rule.drift(at, gradient), both(at) @ gradient + expected, atol=1e-8)
        factor = jnp.array([[1.0, 0.0], [0.4, 0.5]])
        np.testing.assert_allclose(
            recipe.Factored(factor).drift(at, gradient), factor @ factor.T @ gradient, rtol=1e-12
        )


@pytest.mark.parametrize("form", ["factored", "diagonal"])
def test_noise_has_the_promised_covariance(form):
    size, factor = 0.4, jnp.array([[1.0, 0.0], [0.4, 0.5]])
    whitened = jnp.array([[2.0, 0.6], [0.6, 3.0]])
    matrix, excess = factor @ factor.T, factor @ whitened @ factor.T
    expected = 2 * size * matrix - size**2 * excess
    rule, argument = {
        "factored": (recipe.Factored(factor), whitened),
        "diagonal": (recipe.Diagonal(lambda x: jnp.diagonal(matrix), curl), jnp.diagonal(excess)),
    }[form]
    keys = jax.random.split(jax.random.key(0), 40_000)
    draws, clipped = jax.vmap(lambda key: rule.noise(key, jnp.zeros(2), size, argument))(keys)
    assert float(clipped.max()) == 0.0
    found = np.cov(np.asarray(draws).T)
    if form == "diagonal":
        found, expected = np.diag(found), np.diagonal(expected)
    np.testing.assert_allclose(found, expected, atol=0.02 * float(np.max(expected)))


def test_too_much_gradient_noise_is_clipped_and_reported():
    draws, clipped = recipe.Factored(jnp.ones(2)).noise(
        jax.random.key(0), jnp.zeros(2), 0.5, jnp.diag(jnp.array([100.0, 0.0]))
    )
    assert float(clipped) == 0.5
    assert float(draws[0]) == 0.0 and float(draws[1]) != 0.0


@pytest.mark.parametrize(("sign", "expected"), [(1.0, 3.0), (-1.0, 1.0)])
def test_chain_with_state_dependent_diffusion(sign, expected):
    """Gamma(3, 1) with D = x: mean and variance 3. Without Gamma's right sign it is Gamma(1, 1)."""

    class Signed(recipe.Diagonal):
        def correction(self, theta):
            return sign * super().correction(theta)

    rule, size = Signed(lambda x: x, jnp.zeros_like), 0.02

    def one(x, key):
        x = jnp.abs(recipe.step(rule, key, x, 2.0 / x - 1.0, size).theta)
        return x, x

    keys = jax.random.split(jax.random.key(4), 6000)
    _, draws = jax.jit(lambda x: jax.lax.scan(one, x, keys))(jnp.full(500, expected))
    draws = np.asarray(draws)[1000:]
    # Reflection at 0 makes the mean of the exponential distribution 1.5 % too high, and hardly touches Gamma(3, 1).
    assert abs(draws.mean() / expected - 1) < 0.03
    assert abs(draws.std() / np.sqrt(expected) - 1) < 0.03


def test_rounding_does_not_choose_the_noise():
    """Windows are fewer than parameters: most eigenvalues are equal, and their eigenvectors arbitrary."""
    rng = np.random.default_rng(0)
    few = rng.normal(size=(7, 2))
    covariance = jnp.asarray(np.eye(7) - 0.01 * few @ few.T, jnp.float32)
    rounding = jnp.asarray(1e-7 * rng.normal(size=(7, 7)), jnp.float32)
    draw, _ = recipe.normal_with(jax.random.key(1), covariance)
    again, _ = recipe.normal_with(jax.random.key(1), covariance + rounding + rounding.T)
    np.testing.assert_allclose(again, draw, atol=1e-5)
