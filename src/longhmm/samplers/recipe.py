"""The complete recipe for stochastic-gradient MCMC: one step of every diffusion that keeps a given distribution.

With U minus the log density, D(theta) positive semidefinite and Q(theta) skew-symmetric, Algorithm 1 is

    theta' = theta - h [ (D + Q) grad U - Gamma ] + N(0, 2 h D - h^2 B),     Gamma_i = sum_j d_j (D_ij + Q_ij)

where B is the covariance of the estimated drift `(D + Q) grad U`: what the gradient's own noise already contributes is
not injected again. Where 2 h D - h^2 B is not positive semidefinite, its negative directions get no noise at all.

Reference: Y.-A. Ma, T. Chen and E. B. Fox, A complete recipe for stochastic gradient MCMC, NeurIPS 2015. The hidden
Markov paper (Ma, Foti and Fox 2017) prints `+ Gamma` inside the bracket, which does not keep the distribution.

The gradient in the code is that of the **log density**, minus grad U. Its noise is known from its own windows: with
block scores `g_c` and weights `w_c`, one over the probability with which a block is among the S that are drawn, the
estimate `sum_c w_c g_c` has the covariance (F27)

    V = S / (S - 1) sum_c (1 - 1 / w_c) (w_c g_c - mean) (w_c g_c - mean)^T

which is `(N^2 / S)(1 - S/N) cov(g_c)` where all of N blocks are as likely. A single minibatch says little about it, so
estimates are averaged over steps: plainly at first, later with exponential forgetting, since V moves with the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends.evaluate import Statistics
from longhmm.errors import ModelError
from longhmm.inference.scaling import product
from longhmm.target.buffered import WindowTarget
from longhmm.target.coordinates import Flat, scores
from longhmm.target.minibatch import Minibatch
from longhmm.target.target import Estimate

Field = Callable[[jax.Array], jax.Array]
FORGETTING = 0.01  # share of the newest estimate of V once the average has seen 1 / FORGETTING steps


class Moved(NamedTuple):
    """The next point, and the share of directions in which the gradient's noise alone was too much already."""

    theta: jax.Array
    clipped: jax.Array


@dataclass(frozen=True)
class Factored:
    """A constant `D = L L^T` and Q = 0, so that Gamma = 0.

    Args:
        factor: L as a matrix `(P, P)`, or as the diagonal `(P,)` of one.
    """

    factor: jax.Array

    def drift(self, theta: jax.Array, gradient: jax.Array) -> jax.Array:
        """`(D + Q) gradient + Gamma`."""
        return scaled(self.factor, scaled_back(self.factor, gradient))

    def noise(self, key: jax.Array, theta: jax.Array, step_size: Any, covariance: Any) -> tuple[jax.Array, jax.Array]:
        """A draw of `N(0, 2 h D - h^2 B)` and the share of clipped directions; `covariance` is `L^T V L`, or None."""
        if covariance is None:
            draw = jnp.sqrt(2.0 * step_size) * jax.random.normal(key, theta.shape, theta.dtype)
            return scaled(self.factor, draw), jnp.zeros((), theta.dtype)
        identity = jnp.eye(theta.shape[0], dtype=theta.dtype)
        draw, clipped = normal_with(key, 2.0 * step_size * identity - step_size**2 * covariance)
        return scaled(self.factor, draw), clipped


@dataclass(frozen=True)
class Diagonal:
    """A diagonal D and a constant Q, at a cost linear in P.

    Args:
        diffusion: `theta -> (P,)`, the diagonal of D, whose entry i depends on `theta_i` alone.
        curl: the linear map `v -> Q v`.
    """

    diffusion: Field
    curl: Field

    def drift(self, theta: jax.Array, gradient: jax.Array) -> jax.Array:
        """`(D + Q) gradient + Gamma`."""
        return self.diffusion(theta) * gradient + self.curl(gradient) + self.correction(theta)

    def correction(self, theta: jax.Array) -> jax.Array:
        """Gamma: entry i depends on `theta_i` alone, so that one pass along (1, ..., 1) gives every `d_i D_ii`."""
        return jax.jvp(self.diffusion, (theta,), (jnp.ones_like(theta),))[1]

    def noise(self, key: jax.Array, theta: jax.Array, step_size: Any, covariance: Any) -> tuple[jax.Array, jax.Array]:
        """A draw of `N(0, 2 h D - h^2 B)` and the share of clipped directions; `covariance` is diag(B), or None."""
        variance = 2.0 * step_size * self.diffusion(theta)
        if covariance is not None:
            variance = variance - step_size**2 * covariance
        draw = jax.random.normal(key, theta.shape, theta.dtype)
        return jnp.sqrt(jnp.maximum(variance, 0.0)) * draw, jnp.mean((variance < 0).astype(theta.dtype))


def step(
    recipe: Factored | Diagonal,
    key: jax.Array,
    theta: jax.Array,
    gradient: jax.Array,
    step_size: Any,
    covariance: Any = None,
) -> Moved:
    """One step of Algorithm 1 from the flat vector `theta` with an estimate of the gradient of the log density.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> step(Factored(jnp.ones(2)), jax.random.key(0), jnp.zeros(2), jnp.ones(2), 0.1).theta.shape
        (2,)
    """
    noise, clipped = recipe.noise(key, theta, step_size, covariance)
    return Moved(theta + step_size * recipe.drift(theta, gradient) + noise, clipped)


def normal_with(key: jax.Array, covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A normal draw with a symmetric matrix as covariance, its negative eigenvalues taken as 0; and their share.

    By the symmetric root, which does not depend on the signs and bases that rounding chooses for eigenvectors.
    """
    values, vectors = jnp.linalg.eigh(covariance)
    draw = jax.random.normal(key, values.shape, values.dtype)
    # Rounding makes zero eigenvalues slightly negative; those are not counted.
    slack = 1e-5 * jnp.max(jnp.abs(values))
    clipped = jnp.mean((values < -slack).astype(values.dtype))
    return vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * (vectors.T @ draw)), clipped


def scaled(factor: jax.Array, vector: jax.Array) -> jax.Array:
    """`L v`, for L as a matrix or as a diagonal."""
    return factor * vector if factor.ndim == 1 else product(factor, vector)


def scaled_back(factor: jax.Array, vector: jax.Array) -> jax.Array:
    """`L^T v`, along the last axis of `vector`."""
    return vector * factor if factor.ndim == 1 else product(factor.T, vector)


# The noise of a minibatch gradient --------------------------------------------------------------------------------


def check_noise_known(target: Any, name: str) -> None:
    """Refuse targets whose noise cannot be read off their windows."""
    if not target.apart:
        raise ModelError(
            f"noise_correction of {name} needs the scores of independent windows, as Buffered(...) gives them, got "
            f"{type(target).__name__}: leave noise_correction out (full data have no noise; for control variates "
            "the default sampler matches the noise)."
        )
    if target.source.scheme.count < 2:
        raise ModelError(
            "noise_correction needs at least 2 windows per minibatch to see their spread, got 1: use more windows."
        )


def window_scores(target: WindowTarget, coordinates: Mapping[str, Any], statistics: Statistics) -> dict[str, Any]:
    """The score `g_c` of every window, by name, with a leading axis S."""
    return scores(target.model, coordinates, statistics, initial_moves=target.initial is None)


def _deviations(values: jax.Array, minibatch: Minibatch) -> jax.Array:
    """`(S, ..., P)`, whose squares add up to V."""
    count = values.shape[0]
    weights = minibatch.weights.reshape((count,) + (1,) * (values.ndim - 1))
    weighted = weights * values
    # A block that is always drawn brings no noise; its weight may come out a little below 1.
    missed = jnp.maximum(1.0 - 1.0 / weights, 0.0)
    return jnp.sqrt(missed * (count / (count - 1.0))) * (weighted - jnp.mean(weighted, axis=0))


def covariance(values: jax.Array, minibatch: Minibatch) -> jax.Array:
    """`V (..., P, P)` from values `(S, ..., P)` of the windows of one minibatch."""
    found = _deviations(values, minibatch)
    return jnp.einsum("s...i,s...j->...ij", found, found)


def variance(values: jax.Array, minibatch: Minibatch) -> jax.Array:
    """The diagonal of V, `(..., P)`."""
    return jnp.sum(_deviations(values, minibatch) ** 2, axis=0)


def learned(
    target: WindowTarget, state: Any, seen: Estimate, minibatch: Minibatch, spread: Callable[..., jax.Array]
) -> jax.Array | None:
    """`state.noise` with what this minibatch says of it; `spread` is `covariance` or `variance`, of `L^T g_hat`."""
    if state.noise is None or seen.windows is None:
        return None
    found = Flat.like(state.coordinates).ravel(window_scores(target, state.coordinates, seen.windows))
    return averaged(state.noise, spread(scaled_back(state.factor, found), minibatch), state.steps)


def averaged(before: jax.Array, now: jax.Array, index: jax.Array) -> jax.Array:
    """The moving average after step `index` (counted from 0), in which `now` is the newest estimate."""
    return before + (now - before) * jnp.maximum(1.0 / (index + 1.0), FORGETTING)
