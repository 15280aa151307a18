"""Small covariance matrices, written out, against NumPyro's general ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to, constraints
from scipy.stats import multivariate_normal

from longhmm.model.covariance import inverse_factor, inverse_wishart_density, is_covariance, marginal_log_density
from longhmm.model.parameters import Parameter


def bijection(support):
    return Parameter("covariance", (), None, None, support).bijection


@pytest.mark.parametrize("features", [1, 2, 3, 4, 5])
def test_the_bijection_is_numpyros(features):
    rng = np.random.default_rng(features)
    with jax.enable_x64(True):
        ours, theirs = bijection(constraints.positive_definite), biject_to(constraints.positive_definite)
        u = jnp.asarray(rng.normal(size=(6, features * (features + 1) // 2)))
        np.testing.assert_allclose(ours(u), theirs(u), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(ours.inv(ours(u)), u, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            ours.log_abs_det_jacobian(u, ours(u)), theirs.log_abs_det_jacobian(u, theirs(u)), rtol=1e-12
        )
        assert ours.inverse_shape((6, features, features)) == u.shape


def with_derivatives(density, covariance, u):
    """Densities, their slopes, and the curvature along u; each compiled as one program, which takes far less time."""

    def along(at):
        return jnp.sum(density(bijection(constraints.positive_definite)(at)))

    slope = jax.jit(jax.grad(lambda at: jnp.sum(density(at))))(covariance)
    return jax.jit(density)(covariance), slope, jax.jit(jax.hessian(along))(u)


@pytest.mark.parametrize("features", [1, 3, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 4, 6))])
def test_the_inverse_wishart_density_is_numpyros_with_its_slope(features):
    rng = np.random.default_rng(features)
    with jax.enable_x64(True):
        factor = np.tril(rng.normal(size=(features, features)), -1) + np.diag(rng.uniform(0.5, 2, features))
        prior = dist.InverseWishart(features + 2.5, scale_tril=factor)
        u = jnp.asarray(rng.normal(size=(5, features * (features + 1) // 2)))
        covariance = bijection(constraints.positive_definite)(u)
        value, slope, curve = with_derivatives(lambda at: inverse_wishart_density(prior, at), covariance, u[0:1])
        other_value, other_slope, other_curve = with_derivatives(prior.log_prob, covariance, u[0:1])
        np.testing.assert_allclose(value, other_value, rtol=1e-11)
        np.testing.assert_allclose(slope, 0.5 * (other_slope + jnp.swapaxes(other_slope, 1, 2)), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(curve, other_curve, rtol=1e-7, atol=1e-9)


def seen_in_part(features):
    """Means, covariances, rows and which of their features were observed, for two states."""
    rng = np.random.default_rng(features)
    root = rng.normal(size=(2, features, features))
    observed = rng.random((7, features)) < 0.7
    observed[0], observed[1] = True, False
    mean, covariance = rng.normal(size=(2, features)), root @ root.swapaxes(1, 2) + np.eye(features)
    return mean, covariance, rng.normal(size=(7, features)), observed


@pytest.mark.parametrize("features", [2, 6])
def test_the_density_of_what_was_observed_is_its_marginal(features):
    mean, covariance, y, observed = seen_in_part(features)
    with jax.enable_x64(True):
        found = marginal_log_density(*map(jnp.asarray, (mean, covariance, y, observed)))
    for row, seen in enumerate(observed):
        for state in range(2):
            own = multivariate_normal(mean[state, seen], covariance[state][np.ix_(seen, seen)]) if seen.any() else None
            expected = 0.0 if own is None else own.logpdf(y[row, seen])
            assert found[row, state] == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("features", [3, 5])
def test_slopes_and_curvatures_of_the_density_are_those_of_differences(features):
    mean, covariance, y, observed = map(jnp.asarray, seen_in_part(features))
    with jax.enable_x64(True):
        u = bijection(constraints.positive_definite).inv(jnp.asarray(covariance, jnp.float64))

        def total(at):
            matrices = bijection(constraints.positive_definite)(at.reshape(u.shape))
            return jnp.sum(marginal_log_density(mean, matrices, y, observed))

        slope, curve = jax.jit(jax.grad(total)), jax.jit(jax.hessian(total))(u.ravel())
        for number in (0, u.size // 2, u.size - 1):
            along = 1e-5 * jnp.eye(u.size)[number]
            either = [(total(u.ravel() + sign * along), slope(u.ravel() + sign * along)) for sign in (1, -1)]
            value, gradient = ((one - other) / 2e-5 for one, other in zip(*either, strict=True))
            np.testing.assert_allclose(slope(u.ravel())[number], value, rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(curve[number], gradient, rtol=1e-5, atol=1e-6)


def test_batches_do_not_go_to_lapack_where_two_at_a_time_can_wait_for_each_other():
    given = seen_in_part(6)
    program = jax.jit(jax.hessian(lambda mean: jnp.sum(marginal_log_density(mean, *given[1:])))).lower(given[0])
    assert "lapack" not in program.as_text()


@pytest.mark.parametrize("features", [1, 6, 20])
def test_the_inverse_factor_whitens(features):
    root = np.random.default_rng(features).normal(size=(3, features, features))
    matrices = root @ root.swapaxes(1, 2) + 0.1 * np.eye(features)
    with jax.enable_x64(True):
        found = np.asarray(inverse_factor(jnp.asarray(matrices)))
        unit = np.asarray(inverse_factor(jnp.asarray(-np.eye(2)[None])))
    np.testing.assert_allclose(found, np.linalg.inv(np.linalg.cholesky(matrices)), rtol=1e-9, atol=1e-11)
    assert np.isnan(unit).any()


def test_what_is_not_small_is_left_to_numpyro():
    assert inverse_wishart_density(dist.InverseWishart(4.0, scale_tril=np.eye(2)), jnp.eye(2)) is None
    stacked = dist.InverseWishart(4.0, scale_tril=np.tile(np.eye(2), (3, 1, 1)))
    assert inverse_wishart_density(stacked, jnp.tile(jnp.eye(2), (3, 1, 1))) is None
    assert isinstance(bijection(constraints.positive), type(biject_to(constraints.positive)))


def test_flat_priors_have_the_same_bijection_as_others():
    flat = dist.ImproperUniform(constraints.positive_definite, (), (2, 2))
    assert isinstance(bijection(flat.support), type(bijection(constraints.positive_definite)))


@pytest.mark.parametrize("features", [1, 2, 5])
def test_matrices_are_judged_as_numpyro_does(features: int) -> None:
    rng = np.random.default_rng(features)
    right = np.cov(rng.normal(size=(features, 50))).reshape(1, features, features)
    skew, singular = right.copy(), right - np.linalg.eigvalsh(right).min() * 1.01 * np.eye(features)
    skew[0, 0, -1] *= 1.01
    judged = [is_covariance(each) for each in (right, skew, singular, np.concatenate([right, singular]))]
    assert judged == [True, features == 1, False, False]
    assert judged == [bool(np.all(constraints.positive_definite(each))) for each in (right, skew, singular)] + [False]
