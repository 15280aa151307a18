"""Covariance matrices of a few features: Gaussian log densities, coordinates, and the inverse Wishart density. Up to
`UNROLLED` features everything is written out as scalar arithmetic: XLA fuses it into one loop over observations or
states, where batches of tiny matrix products would each go through memory and take longer to call than to compute.
LAPACK is not asked for batches: JAX shares them out among the threads of a pool and waits inside one of them, so that
two batches at a time on two processors wait for each other for ever."""

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
        for row in _factors(masked)[1]:
            z = sum(entry * residual[..., j] for j, entry in enumerate(row))
            total = total + jnp.log(row[-1]) - 0.5 * z * z
        return total - constant
    both, one = seen[..., :, None] & seen[..., None, :], jnp.eye(features, dtype=covariance.dtype)
    products = residual[..., :, None] * residual[..., None, :]
    return scatter_density(jnp.where(both, covariance, one), products, jnp.ones_like(constant)) - constant


def whitening(covariance: jax.Array) -> jax.Array:
    """Rows of M `(..., D (D + 1) / 2)`, lower triangular, with `M covariance M^T = I`: the inverse Cholesky factor."""
    features = covariance.shape[-1]
    if features <= UNROLLED:
        return jnp.stack([entry for row in _factors(_entries(covariance))[1] for entry in row], axis=-1)
    return inverse_factor(covariance)[..., *np.tril_indices(features)]


def inverse_factor(matrices: jax.Array) -> jax.Array:
    """The inverse Cholesky factor M `(..., D, D)` of symmetric matrices, column by column; NaN where not positive."""
    features = matrices.shape[-1]

    def eliminate(j: jax.Array, found: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rest, inverse = found
        scale = jax.lax.rsqrt(rest[..., j, j])[..., None]
        own, below = inverse[..., j, :] * scale, jnp.where(jnp.arange(features) > j, rest[..., j, :] * scale, 0.0)
        rest = rest - below[..., :, None] * below[..., None, :]
        return rest, inverse.at[..., j, :].set(own) - below[..., :, None] * own[..., None, :]

    identity = jnp.broadcast_to(jnp.eye(features, dtype=matrices.dtype), matrices.shape)
    return jax.lax.fori_loop(0, features, eliminate, (matrices, identity))[1]


def log_det_of(triangles: jax.Array, features: int) -> jax.Array:
    """`(...)`, half the log determinants of inverse covariances, from their whitening triangles."""
    return jnp.sum(jnp.log(triangles[..., np.cumsum(np.arange(features) + 1) - 1]), axis=-1)


@jax.custom_jvp
def scatter_density(covariance: jax.Array, moments: jax.Array, count: jax.Array) -> jax.Array:
    """`-1/2 (n log det C + tr(S C^-1))` `(...)`; derivatives are written out, since a factorisation has long ones."""
    return _with_precision(covariance, moments, count)[0]


def _with_precision(covariance: jax.Array, moments: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
    features, triangles = covariance.shape[-1], whitening(covariance)
    square = jnp.zeros_like(covariance).at[..., *np.tril_indices(features)].set(triangles)
    precision = _product(square.swapaxes(-1, -2), square)
    return count * log_det_of(triangles, features) - 0.5 * jnp.sum(precision * moments, axis=(-2, -1)), precision


@scatter_density.defjvp
def _scatter_slope(at: tuple[jax.Array, ...], along: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """By `1/2 (P S P - n P)` and `-1/2 P`; counts are data."""
    value, precision = _with_precision(*at)
    slope = _product(_product(precision, at[1]), precision) - at[2][..., None, None] * precision
    return value, 0.5 * jnp.sum(slope * along[0] - precision * along[1], axis=(-2, -1))


def _product(one: jax.Array, other: jax.Array) -> jax.Array:
    """Of tiny matrices: XLA fuses sums over broadcast products, where products would be calls of their own."""
    return jnp.sum(one[..., :, :, None] * other[..., None, :, :], axis=-2)


def _entries(covariance: jax.Array) -> Triangle:
    """Entry by entry, symmetrised so that the gradient is the symmetric one."""
    features = covariance.shape[-1]
    return [[0.5 * (covariance[..., i, j] + covariance[..., j, i]) for j in range(i + 1)] for i in range(features)]


def _factors(entries: Triangle) -> tuple[Triangle, Triangle]:
    """The Cholesky factor below its diagonal, and its inverse with that, scalar by scalar."""
    rows: Triangle = []
    inverse: Triangle = []
    for i, row in enumerate(entries):
        rows.append([])
        for j in range(i):
            rows[i].append((row[j] - sum((rows[i][m] * rows[j][m] for m in range(j)), 0.0)) * inverse[j][j])
        diagonal = jax.lax.rsqrt(row[i] - sum((rows[i][m] ** 2 for m in range(i)), 0.0))
        solved = [-diagonal * sum(rows[i][m] * inverse[m][j] for m in range(j, i)) for j in range(i)]
        inverse.append([*solved, diagonal])
    return rows, inverse


def is_covariance(matrices: np.ndarray) -> bool:
    """Whether matrices are symmetric and positive definite; NumPyro's check takes as long as a short pass."""
    skew = np.abs(matrices - matrices.swapaxes(-1, -2)).max()
    return bool(skew <= 1e-5 * np.abs(matrices).max() and np.linalg.eigvalsh(matrices).min() > 0)


class CovarianceBijection:
    """NumPyro's bijection to positive definite matrices, with both ways written out for few features. The coordinates
    are NumPyro's: entries below the diagonal of the Cholesky factor, then logarithms of its diagonal."""

    def __init__(self) -> None:
        self._general = biject_to(constraints.positive_definite)
        self.inverse_shape = self._general.inverse_shape

    def __call__(self, u: jax.Array) -> jax.Array:
        features = self._general.forward_shape(u.shape)[-1]
        if features > UNROLLED:
            return self._general(u)
        below = iter(range(u.shape[-1] - features))
        rows = [[u[..., next(below)] for _ in range(i)] + [jnp.exp(u[..., i - features])] for i in range(features)]
        product = [[sum(a * b for a, b in zip(one, other, strict=False)) for other in rows] for one in rows]
        return jnp.stack([jnp.stack(row, axis=-1) for row in product], axis=-2)

    def inv(self, covariance: jax.Array) -> jax.Array:
        if covariance.shape[-1] > UNROLLED:
            return self._general.inv(covariance)
        below, inverse = _factors(_entries(covariance))
        logs = [-jnp.log(row[-1]) for row in inverse]
        return jnp.stack([*(entry for row in below for entry in row), *logs], axis=-1)

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
