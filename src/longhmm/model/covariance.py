"""Covariance matrices of a few features: Gaussian log densities, coordinates, and the inverse Wishart density.

Observations have shape (..., D) and parameters are stacked over states, `mean (K, D)` and `covariance (K, D, D)`. Up to
`UNROLLED` features everything is written out as scalar arithmetic: XLA fuses it into one loop over observations or
states, where batches of tiny matrix products would each go through memory and take longer to call than to compute.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import multigammaln
from numpyro.distributions import InverseWishart, biject_to, constraints

from longhmm.model.support import bare

UNROLLED = 4
LOG_2PI = math.log(2.0 * math.pi)


def full_log_density(mean: jax.Array, covariance: jax.Array, y: jax.Array) -> jax.Array:
    """log N(y | mean_k, covariance_k) for every state."""
    features = mean.shape[-1]
    if features <= UNROLLED:
        difference = [y[..., None, i] - mean[:, i] for i in range(features)]
        return _unrolled(difference, _entries(covariance)) - 0.5 * features * LOG_2PI
    factor = jnp.linalg.cholesky(covariance)
    identity = jnp.broadcast_to(jnp.eye(features, dtype=factor.dtype), factor.shape)
    whiten = jax.scipy.linalg.solve_triangular(factor, identity, lower=True)
    z = jnp.einsum("...kj,kij->...ki", y[..., None, :] - mean, whiten)
    return -0.5 * jnp.sum(z * z, -1) - _half_log_det(factor) - 0.5 * features * LOG_2PI


def marginal_log_density(mean: jax.Array, covariance: jax.Array, y: jax.Array, observed: jax.Array) -> jax.Array:
    """log density of the observed part of every row; missing entries of `y` must be finite.

    Rows and columns of missing features are replaced by those of the identity and their residuals by zero: they then
    add nothing to the determinant or to the quadratic form, which leaves the marginal of the observed features.
    """
    features = mean.shape[-1]
    seen = observed[..., None, :]
    n_observed = jnp.sum(seen, -1).astype(mean.dtype)
    if features <= UNROLLED:
        difference = [jnp.where(seen[..., i], y[..., None, i] - mean[:, i], 0) for i in range(features)]
        entries = _entries(covariance)
        masked = [
            [jnp.where(seen[..., i] & seen[..., j], entries[i][j], float(i == j)) for j in range(i + 1)]
            for i in range(features)
        ]
        return _unrolled(difference, masked) - 0.5 * n_observed * LOG_2PI
    residual = jnp.where(seen, y[..., None, :] - mean, 0)
    both = seen[..., :, None] & seen[..., None, :]
    factor = jnp.linalg.cholesky(jnp.where(both, covariance, jnp.eye(features, dtype=covariance.dtype)))
    z = jax.scipy.linalg.solve_triangular(factor, residual[..., None], lower=True)[..., 0]
    return -0.5 * jnp.sum(z * z, -1) - _half_log_det(factor) - 0.5 * n_observed * LOG_2PI


def whitening(covariance: jax.Array) -> jax.Array:
    """Rows of M `(K, D (D + 1) / 2)`, lower triangular, with `M covariance M^T = I`: the inverse Cholesky factor."""
    features = covariance.shape[-1]
    if features > UNROLLED:
        factor = jnp.linalg.cholesky(covariance)
        identity = jnp.broadcast_to(jnp.eye(features, dtype=factor.dtype), factor.shape)
        inverse = jax.scipy.linalg.solve_triangular(factor, identity, lower=True)
        return jnp.stack([inverse[:, i, j] for i in range(features) for j in range(i + 1)], axis=1)
    entries = _entries(covariance)
    rows: list[list[jax.Array]] = []
    inverse_rows: list[list[jax.Array]] = []
    for i in range(features):
        rows.append([])
        for j in range(i):
            entry = entries[i][j] - sum((rows[i][m] * rows[j][m] for m in range(j)), 0.0)
            rows[i].append(entry * inverse_rows[j][j])
        diagonal = jax.lax.rsqrt(entries[i][i] - sum((rows[i][m] ** 2 for m in range(i)), 0.0))
        solved = [-diagonal * sum(rows[i][m] * inverse_rows[m][j] for m in range(j, i)) for j in range(i)]
        inverse_rows.append([*solved, diagonal])
    return jnp.stack([entry for row in inverse_rows for entry in row], axis=1)


def precision(covariance: jax.Array) -> jax.Array:
    """Inverses `(K, D, D)` of covariance matrices."""
    features = covariance.shape[-1]
    rows, columns = np.tril_indices(features)
    triangle = jnp.zeros_like(covariance).at[:, rows, columns].set(whitening(covariance))
    return jnp.sum(triangle[:, :, :, None] * triangle[:, :, None, :], axis=1)


def scatter_slope(precise: jax.Array, moments: jax.Array, count: jax.Array) -> jax.Array:
    """`1/2 (P S P - n P)`, the derivative of `-1/2 (n log det C + tr(S C^-1))` with respect to C, at `P = C^-1`.

    Written with sums over broadcast products, which XLA fuses, where tiny matrix products would be calls of their own.
    """
    half = jnp.sum(precise[:, :, :, None] * moments[:, None, :, :], axis=2)
    whole = jnp.sum(half[:, :, :, None] * precise[:, None, :, :], axis=2)
    return 0.5 * (whole - count[:, None, None] * precise)


def _entries(covariance: jax.Array) -> list[list[jax.Array]]:
    """The lower triangle, entry by entry, symmetrised so that the gradient is the symmetric one."""
    features = covariance.shape[-1]
    return [[0.5 * (covariance[..., i, j] + covariance[..., j, i]) for j in range(i + 1)] for i in range(features)]


def _unrolled(difference: list[jax.Array], covariance: list[list[jax.Array]]) -> jax.Array:
    """Quadratic form and determinant by Cholesky and forward substitution, scalar by scalar."""
    rows: list[list[jax.Array]] = []
    inverse_diagonal: list[jax.Array] = []
    z: list[jax.Array] = []
    for i, row in enumerate(covariance):
        rows.append([])
        for j in range(i):
            entry = row[j] - sum((rows[i][m] * rows[j][m] for m in range(j)), 0.0)
            rows[i].append(entry * inverse_diagonal[j])
        inverse_diagonal.append(jax.lax.rsqrt(row[i] - sum((rows[i][m] ** 2 for m in range(i)), 0.0)))
        z.append((difference[i] - sum((rows[i][m] * z[m] for m in range(i)), 0.0)) * inverse_diagonal[i])
    squares, minus_half_log_det = z[0] * z[0], jnp.log(inverse_diagonal[0])
    for value, scale in zip(z[1:], inverse_diagonal[1:], strict=True):
        squares, minus_half_log_det = squares + value * value, minus_half_log_det + jnp.log(scale)
    return minus_half_log_det - 0.5 * squares


def _half_log_det(factor: jax.Array) -> jax.Array:
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), -1)


# Coordinates and prior ---------------------------------------------------------------------------------------------


def bijection(support: constraints.Constraint) -> Any:
    """From the real numbers to a region: NumPyro's, but for small covariance matrices."""
    if isinstance(bare(support), type(constraints.positive_definite)):
        return CovarianceBijection()
    return biject_to(support)


class CovarianceBijection:
    """NumPyro's bijection to positive definite matrices, with the way there written out for few features.

    The coordinates are NumPyro's: entries below the diagonal of the Cholesky factor, then logarithms of its diagonal.
    """

    def __init__(self) -> None:
        self._general = biject_to(constraints.positive_definite)
        self.inv, self.inverse_shape = self._general.inv, self._general.inverse_shape

    def __call__(self, u: jax.Array) -> jax.Array:
        features = _features(u)
        if features > UNROLLED:
            return self._general(u)
        rows = _factor(u, features)
        product = [
            [sum(rows[i][m] * rows[j][m] for m in range(min(i, j) + 1)) for j in range(features)]
            for i in range(features)
        ]
        return jnp.stack([jnp.stack(row, axis=-1) for row in product], axis=-2)

    def log_abs_det_jacobian(self, u: jax.Array, value: jax.Array) -> jax.Array:
        """`log |d value / d u|`: of the exponentials on the diagonal, and of the product of factors."""
        features = _features(u)
        powers = np.arange(features + 1, 1, -1).astype(u.dtype)
        return jnp.sum(powers * u[..., -features:], axis=-1) + features * math.log(2.0)


def inverse_wishart_density(prior: InverseWishart, covariance: jax.Array) -> jax.Array | None:
    """The log density of matrices `(K, D, D)`; None where NumPyro has to find it."""
    features = covariance.shape[-1]
    scale, freedom = prior.scale_tril, jnp.asarray(prior.concentration, covariance.dtype)
    if covariance.ndim != 3 or np.ndim(scale) != 2 or np.ndim(freedom) != 0:
        return None
    scale = jnp.asarray(scale, covariance.dtype)
    half = 0.5 * freedom
    constant = freedom * jnp.sum(jnp.log(jnp.diagonal(scale))) - half * features * math.log(2.0)
    moments = jnp.broadcast_to(scale @ scale.T, covariance.shape)
    count = jnp.broadcast_to(freedom + features + 1.0, covariance.shape[:1])
    return constant - multigammaln(half, features) + _scatter_density(covariance, moments, count)


@jax.custom_vjp
def _scatter_density(covariance: jax.Array, moments: jax.Array, count: jax.Array) -> jax.Array:
    """`-1/2 (n log det C + tr(S C^-1))`; its derivative is written out, since that of a factorisation is long."""
    return _scatter_forward(covariance, moments, count)[0]


def _scatter_forward(covariance: jax.Array, moments: jax.Array, count: jax.Array) -> tuple[jax.Array, Any]:
    precise = precision(covariance)
    diagonal = whitening(covariance)[:, np.cumsum(np.arange(covariance.shape[-1]) + 1) - 1]
    value = count * jnp.sum(jnp.log(diagonal), axis=1) - 0.5 * jnp.sum(precise * moments, axis=(1, 2))
    return value, (precise, moments, count)


def _scatter_backward(kept: Any, slope: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    precise, moments, count = kept
    return slope[:, None, None] * scatter_slope(precise, moments, count), jnp.zeros_like(moments), jnp.zeros_like(count)


_scatter_density.defvjp(_scatter_forward, _scatter_backward)


def _features(u: jax.Array) -> int:
    return round((math.sqrt(1 + 8 * u.shape[-1]) - 1) / 2)


def _factor(u: jax.Array, features: int) -> list[list[jax.Array]]:
    """Rows of the lower Cholesky factor."""
    below = iter(range(u.shape[-1] - features))
    return [
        [u[..., next(below)] for _ in range(i)] + [jnp.exp(u[..., u.shape[-1] - features + i])] for i in range(features)
    ]
