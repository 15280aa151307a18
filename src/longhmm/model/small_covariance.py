"""Covariance matrices of a few features, written out entry by entry.

A step of a sampler needs a handful of matrices of two or three rows, and their derivatives. Libraries for matrices take
longer to be called than to compute them; XLA makes one loop over states out of plain arithmetic. The coordinates are
those of NumPyro's bijection: entries below the diagonal of the Cholesky factor, then the logarithms of its diagonal.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import multigammaln
from numpyro.distributions import InverseWishart, biject_to, constraints

from longhmm.model.multivariate_normal import UNROLLED, precision, scatter_slope, whitening
from longhmm.model.support import bare


def bijection(support: constraints.Constraint) -> Any:
    """From the real numbers to a region: NumPyro's, but for small covariance matrices."""
    if isinstance(bare(support), type(constraints.positive_definite)):
        return CovarianceBijection()
    return biject_to(support)


class CovarianceBijection:
    """NumPyro's bijection to positive definite matrices, with the way there written out for few features."""

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
