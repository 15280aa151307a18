"""The complete recipe for stochastic-gradient MCMC: one step of every diffusion that keeps a given law.

With U minus the log density, D(theta) positive semidefinite and Q(theta) skew-symmetric, Algorithm 1 is

    theta' = theta - h [ (D + Q) grad U - Gamma ] + N(0, 2 h D - h^2 B),     Gamma_i = sum_j d_j (D_ij + Q_ij)

where B is the covariance of the estimated drift `(D + Q) grad U`: what the gradient's own noise already contributes is
not injected again. Where 2 h D - h^2 B is not positive semidefinite, its negative directions get no noise at all.

Reference: Y.-A. Ma, T. Chen and E. B. Fox, A complete recipe for stochastic gradient MCMC, NeurIPS 2015. The hidden
Markov paper (Ma, Foti and Fox 2017) prints `+ Gamma` inside the bracket, which does not keep the law.

Three forms share the step: `Metric` for any D and Q, `Factored` for a constant D known by a factor, and `Diagonal`.
The gradient in the code is that of the **log density**, minus grad U.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from longhmm.inference.scaling import product

Field = Callable[[jax.Array], jax.Array]


class Moved(NamedTuple):
    """The next point, and the share of directions in which the gradient's noise alone was too much already."""

    theta: jax.Array
    clipped: jax.Array


class Recipe(Protocol):
    """D and Q in some form."""

    def drift(self, theta: jax.Array, gradient: jax.Array) -> jax.Array:
        """`(D + Q) gradient`."""

    def correction(self, theta: jax.Array) -> Any:
        """Gamma."""

    def noise(self, key: jax.Array, theta: jax.Array, step_size: Any, excess: Any) -> tuple[jax.Array, jax.Array]:
        """A draw of `N(0, 2 h D - h^2 B)` and the share of clipped directions; `excess` is B, or None for none."""


def step(
    recipe: Recipe, key: jax.Array, theta: jax.Array, gradient: jax.Array, step_size: Any, excess: Any = None
) -> Moved:
    """One step of Algorithm 1 from the flat vector `theta` with an estimate of the gradient of the log density.

    Args:
        recipe: D and Q.
        key: random key, used once.
        theta: `(P,)`.
        gradient: `(P,)`, estimate of the gradient of the log density at `theta`.
        step_size: h.
        excess: B in the recipe's own form: `(P, P)` for `Metric`; `(P,)`, its diagonal, for `Diagonal`; for `Factored`
            with `D = L L^T` the whitened `L^T V L`, where `V = Cov(gradient)` and so `B = D V D`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> step(Factored(jnp.ones(2)), jax.random.key(0), jnp.zeros(2), jnp.ones(2), 0.1).theta.shape
        (2,)
    """
    noise, clipped = recipe.noise(key, theta, step_size, excess)
    drift = recipe.drift(theta, gradient) + recipe.correction(theta)
    return Moved(theta + step_size * drift + noise, clipped)


def correction(field: Field, theta: jax.Array) -> jax.Array:
    """`Gamma_i = sum_j d_j F_ij(theta)` for a matrix field, by automatic differentiation (P forward passes)."""
    return jnp.einsum("ijj->i", jax.jacfwd(field)(theta))


@dataclass(frozen=True)
class Metric:
    """D and Q as matrix-valued functions of theta; for low dimension, since Gamma needs P derivatives of a matrix.

    Args:
        diffusion: `theta -> D (P, P)`.
        curl: `theta -> Q (P, P)`, or None for Q = 0.
    """

    diffusion: Field
    curl: Field | None = None

    def _both(self, theta: jax.Array) -> jax.Array:
        return self.diffusion(theta) if self.curl is None else self.diffusion(theta) + self.curl(theta)

    def drift(self, theta: jax.Array, gradient: jax.Array) -> jax.Array:
        return self._both(theta) @ gradient

    def correction(self, theta: jax.Array) -> jax.Array:
        return correction(self._both, theta)

    def noise(self, key: jax.Array, theta: jax.Array, step_size: Any, excess: Any) -> tuple[jax.Array, jax.Array]:
        diffusion = self.diffusion(theta)
        covariance = 2.0 * step_size * diffusion
        if excess is not None:
            covariance = covariance - step_size**2 * excess
        # In units of the injected noise, so that coordinates of very different size lose nothing to rounding.
        scale = jnp.sqrt(jnp.diagonal(diffusion))
        inverse = jnp.where(scale > 0, 1.0 / jnp.where(scale > 0, scale, 1.0), 0.0)
        draw, clipped = normal_with(key, covariance * inverse[:, None] * inverse)
        return scale * draw, clipped


@dataclass(frozen=True)
class Factored:
    """A constant `D = L L^T` and Q = 0, so that Gamma = 0.

    Args:
        factor: L as a matrix `(P, P)`, or as the diagonal `(P,)` of one.
    """

    factor: jax.Array

    def drift(self, theta: jax.Array, gradient: jax.Array) -> jax.Array:
        return scaled(self.factor, scaled_back(self.factor, gradient))

    def correction(self, theta: jax.Array) -> Any:
        return 0.0

    def noise(self, key: jax.Array, theta: jax.Array, step_size: Any, excess: Any) -> tuple[jax.Array, jax.Array]:
        if excess is None:
            draw = jnp.sqrt(2.0 * step_size) * jax.random.normal(key, theta.shape, theta.dtype)
            return scaled(self.factor, draw), jnp.zeros((), theta.dtype)
        identity = jnp.eye(theta.shape[0], dtype=theta.dtype)
        draw, clipped = normal_with(key, 2.0 * step_size * identity - step_size**2 * excess)
        return scaled(self.factor, draw), clipped


@dataclass(frozen=True)
class Diagonal:
    """A diagonal D and a constant Q, at a cost linear in P.

    Args:
        diffusion: `theta -> (P,)`, the diagonal of D, whose entry i depends on `theta_i` alone.
        curl: the linear map `v -> Q v`, or None for Q = 0.
    """

    diffusion: Field
    curl: Field | None = None

    def drift(self, theta: jax.Array, gradient: jax.Array) -> jax.Array:
        along = self.diffusion(theta) * gradient
        return along if self.curl is None else along + self.curl(gradient)

    def correction(self, theta: jax.Array) -> jax.Array:
        # Entry i depends on theta_i alone, so that one pass along (1, ..., 1) gives every d_i D_ii.
        return jax.jvp(self.diffusion, (theta,), (jnp.ones_like(theta),))[1]

    def noise(self, key: jax.Array, theta: jax.Array, step_size: Any, excess: Any) -> tuple[jax.Array, jax.Array]:
        variance = 2.0 * step_size * self.diffusion(theta)
        if excess is not None:
            variance = variance - step_size**2 * excess
        draw = jax.random.normal(key, theta.shape, theta.dtype)
        return jnp.sqrt(jnp.maximum(variance, 0.0)) * draw, jnp.mean((variance < 0).astype(theta.dtype))


def normal_with(key: jax.Array, covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A normal draw with a symmetric matrix as covariance, its negative eigenvalues taken as 0; and their share."""
    values, vectors = jnp.linalg.eigh(covariance)
    draw = jax.random.normal(key, values.shape, values.dtype)
    # Rounding makes zero eigenvalues slightly negative; those are not counted.
    slack = 1e-5 * jnp.max(jnp.abs(values))
    return vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * draw), jnp.mean((values < -slack).astype(values.dtype))


def scaled(factor: jax.Array, vector: jax.Array) -> jax.Array:
    """`L v`, for L as a matrix or as a diagonal."""
    return factor * vector if factor.ndim == 1 else product(factor, vector)


def scaled_back(factor: jax.Array, vector: jax.Array) -> jax.Array:
    """`L^T v`, along the last axis of `vector`."""
    return vector * factor if factor.ndim == 1 else product(factor.T, vector)
