"""Gaussian log densities for many observations and a few states at once.

Observations have shape (..., D) and the parameters are stacked over states, `mean (K, D)` and `covariance (K, D, D)`;
the answers have shape (..., K). Up to `UNROLLED` features the Cholesky factor and the forward substitution are written
out as scalar arithmetic: XLA fuses them into one loop over observations, where batches of tiny matrix products would
each go through memory.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

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
