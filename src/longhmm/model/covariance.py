"""Covariance matrices of a few features: Gaussian log densities, coordinates, and the inverse Wishart density. Up to
`UNROLLED` features everything is written out as scalar arithmetic: XLA fuses it into one loop over observations or
states, where batches of tiny matrix products would each go through memory and take longer to call than to compute.

LAPACK is not asked for batches: JAX shares them out among the threads of a pool and waits inside one of them, so that
two batches at a time on two processors wait for each other for ever.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import multigammaln
from numpyro.distributions import InverseWishart, biject_to, constraints

UNROLLED = 4
LOG_2PI = math.log(2.0 * math.pi)
Triangle = list[list[jax.Array]]  # the lower triangle, row by row


def marginal_log_density(mean: jax.Array, covariance: jax.Array, y: jax.Array, observed: jax.Array) -> jax.Array:
    """log density of the observed part of every row; missing entries of `y` must be finite. Rows and columns of missing
    features are replaced by those of the identity and their residuals by zero: they then add nothing to the determinant
    or to the quadratic form, which leaves the marginal of the observed features."""
    features, seen = mean.shape[-1], observed[..., None, :]
    constant = 0.5 * jnp.sum(seen, -1).astype(mean.dtype) * LOG_2PI
    residual = jnp.where(seen, y[..., None, :] - mean, 0)
    if features <= UNROLLED:
        masked = [
            [jnp.where(seen[..., i] & seen[..., j], entry, float(i == j)) for j, entry in enumerate(row)]
            for i, row in enumerate(_entries(covariance))
        ]
        total: Any = 0.0
        for row in _inverse_factor(masked):
            z = sum(entry * residual[..., j] for j, entry in enumerate(row))
            total = total + jnp.log(row[-1]) - 0.5 * z * z
        return total - constant
    both = seen[..., :, None] & seen[..., None, :]
    precision, log_det = _precision(jnp.where(both, covariance, jnp.eye(features, dtype=covariance.dtype)))
    pulled = jnp.sum(precision * residual[..., None, :], -1)
    return 0.5 * (log_det - jnp.sum(residual * pulled, -1)) - constant


def whitening(covariance: jax.Array) -> jax.Array:
    """Rows of M `(K, D (D + 1) / 2)`, lower triangular, with `M covariance M^T = I`: the inverse Cholesky factor."""
    features = covariance.shape[-1]
    if features <= UNROLLED:
        return jnp.stack([entry for row in _inverse_factor(_entries(covariance)) for entry in row], axis=1)
    return inverse_factor(covariance)[:, *np.tril_indices(features)]


def inverse_factor(matrices: jax.Array) -> jax.Array:
    """The inverse Cholesky factor M `(..., D, D)` of symmetric matrices, column by column; NaN where not positive."""
    features = matrices.shape[-1]

    def eliminate(j: jax.Array, found: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rest, inverse = found
        scale = jax.lax.rsqrt(rest[..., j, j])[..., None]
        own = inverse[..., j, :] * scale
        below = jnp.where(jnp.arange(features) > j, rest[..., j, :] * scale, 0.0)
        rest = rest - below[..., :, None] * below[..., None, :]
        return rest, inverse.at[..., j, :].set(own) - below[..., :, None] * own[..., None, :]

    identity = jnp.broadcast_to(jnp.eye(features, dtype=matrices.dtype), matrices.shape)
    return jax.lax.fori_loop(0, features, eliminate, (matrices, identity))[1]


@jax.custom_jvp
def _precision(covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Inverse matrices, and their log determinants."""
    factor = inverse_factor(covariance)
    return _product(factor.swapaxes(-1, -2), factor), 2 * jnp.sum(jnp.log(jnp.diagonal(factor, 0, -2, -1)), -1)


@_precision.defjvp
def _precision_slope(at: tuple[jax.Array], along: tuple[jax.Array]) -> tuple[Any, Any]:
    precision, log_det = _precision(*at)
    half = _product(precision, along[0])
    return (precision, log_det), (-_product(half, precision), -jnp.trace(half, axis1=-2, axis2=-1))


def _product(one: jax.Array, other: jax.Array) -> jax.Array:
    """Of tiny matrices: XLA fuses the sum, where products would be calls of their own."""
    return jnp.sum(one[..., :, :, None] * other[..., None, :, :], axis=-2)


def log_det_of(triangles: jax.Array, features: int) -> jax.Array:
    """`(K,)`, half the log determinants of inverse covariances, from their whitening triangles."""
    return jnp.sum(jnp.log(triangles[:, np.cumsum(np.arange(features) + 1) - 1]), axis=1)


@jax.custom_vjp
def scatter_density(covariance: jax.Array, moments: jax.Array, count: jax.Array) -> jax.Array:
    """`-1/2 (n log det C + tr(S C^-1))` `(K,)`; derivatives are written out, since a factorisation has long ones."""
    return _scatter_forward(covariance, moments, count)[0]


def _scatter_forward(covariance: jax.Array, moments: jax.Array, count: jax.Array) -> tuple[jax.Array, Any]:
    features, triangles = covariance.shape[-1], whitening(covariance)
    rows, columns = np.tril_indices(features)
    square = jnp.zeros_like(covariance).at[:, rows, columns].set(triangles)
    # Sums over broadcast products are fused by XLA, where tiny matrix products would be calls of their own.
    precision = jnp.sum(square[:, :, :, None] * square[:, :, None, :], axis=1)
    value = count * log_det_of(triangles, features) - 0.5 * jnp.sum(precision * moments, axis=(1, 2))
    return value, (precision, moments, count)


def _scatter_backward(kept: Any, slope: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`1/2 (P S P - n P)` and `-1/2 P`; counts are data."""
    precision, moments, count = kept
    half = jnp.sum(precision[:, :, :, None] * moments[:, None, :, :], axis=2)
    whole = jnp.sum(half[:, :, :, None] * precision[:, None, :, :], axis=2)
    slope = 0.5 * slope[:, None, None]
    return slope * (whole - count[:, None, None] * precision), -slope * precision, jnp.zeros_like(count)


scatter_density.defvjp(_scatter_forward, _scatter_backward)


def _entries(covariance: jax.Array) -> Triangle:
    """Entry by entry, symmetrised so that the gradient is the symmetric one."""
    features = covariance.shape[-1]
    return [[0.5 * (covariance[..., i, j] + covariance[..., j, i]) for j in range(i + 1)] for i in range(features)]


def _inverse_factor(entries: Triangle) -> Triangle:
    """The inverse Cholesky factor, scalar by scalar."""
    rows: Triangle = []  # of the factor itself
    inverse: Triangle = []
    for i, row in enumerate(entries):
        rows.append([])
        for j in range(i):
            rows[i].append((row[j] - sum((rows[i][m] * rows[j][m] for m in range(j)), 0.0)) * inverse[j][j])
        diagonal = jax.lax.rsqrt(row[i] - sum((rows[i][m] ** 2 for m in range(i)), 0.0))
        solved = [-diagonal * sum(rows[i][m] * inverse[m][j] for m in range(j, i)) for j in range(i)]
        inverse.append([*solved, diagonal])
    return inverse


def is_covariance(matrices: np.ndarray) -> bool:
    """Whether matrices are symmetric and positive definite; NumPyro's check takes as long as a short pass."""
    skew = np.abs(matrices - matrices.swapaxes(-1, -2)).max()
    return bool(skew <= 1e-5 * np.abs(matrices).max() and np.linalg.eigvalsh(matrices).min() > 0)


class CovarianceBijection:
    """NumPyro's bijection to positive definite matrices, with the way there written out for few features. The
    coordinates are NumPyro's: entries below the diagonal of the Cholesky factor, then logarithms of its diagonal."""

    def __init__(self) -> None:
        self._general = biject_to(constraints.positive_definite)
        self.inv, self.inverse_shape = self._general.inv, self._general.inverse_shape

    def __call__(self, u: jax.Array) -> jax.Array:
        features = self._general.forward_shape(u.shape)[-1]
        if features > UNROLLED:
            return self._general(u)
        below = iter(range(u.shape[-1] - features))
        rows = [[u[..., next(below)] for _ in range(i)] + [jnp.exp(u[..., i - features])] for i in range(features)]
        product = [[sum(a * b for a, b in zip(one, other, strict=False)) for other in rows] for one in rows]
        return jnp.stack([jnp.stack(row, axis=-1) for row in product], axis=-2)

    def log_abs_det_jacobian(self, u: jax.Array, value: jax.Array) -> jax.Array:
        """`log |d value / d u|`: of the exponentials on the diagonal, and of the product of factors."""
        features = value.shape[-1]
        return (np.arange(features + 1, 1, -1).astype(u.dtype) * u[..., -features:]).sum(-1) + features * math.log(2.0)


def inverse_wishart_density(prior: InverseWishart, covariance: jax.Array) -> jax.Array | None:
    """The log density of matrices `(K, D, D)`; None where NumPyro has to find it."""
    features = covariance.shape[-1]
    scale, freedom = prior.scale_tril, jnp.asarray(prior.concentration, covariance.dtype)
    if covariance.ndim != 3 or np.ndim(scale) != 2 or np.ndim(freedom) != 0:
        return None
    scale, half = jnp.asarray(scale, covariance.dtype), 0.5 * freedom
    constant = freedom * jnp.sum(jnp.log(jnp.diagonal(scale))) - half * features * math.log(2.0)
    moments = jnp.broadcast_to(scale @ scale.T, covariance.shape)
    count = jnp.broadcast_to(freedom + features + 1.0, covariance.shape[:1])
    return constant - multigammaln(half, features) + scatter_density(covariance, moments, count)
