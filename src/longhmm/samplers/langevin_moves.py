"""Langevin steps, and the noise of minibatch gradients.

One step of the complete recipe (F24) with constant `D = L L^T` and an estimate g_hat of the gradient is

    theta' = theta + h D g_hat + N(0, 2 h D - h^2 D V D)

where V is the covariance of g_hat: what its own noise contributes is not injected again, and where that is already too
much nothing is. With scores `g_c` of the S windows and weights `w_c`, one over the probability of a block (F27),

    V = S / (S - 1) sum_c (1 - 1 / w_c) (w_c g_c - mean) (w_c g_c - mean)^T

Reference: Y.-A. Ma, T. Chen and E. B. Fox, A complete recipe for stochastic gradient MCMC, NeurIPS 2015.

Rows move in expanded-mean coordinates (F25): `Ahat[i, j] > 0` with independent Gamma(a_ij, 1) priors, and row i of A is
Ahat's divided by its sum, so Dirichlet(a_i). The drift has `a`, not `a - 1`: the correction of `D = diag(Ahat)` cancels
the one. Row i may move at its own constant pace `h_i`. The row sums carry no information on A and need not mix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.errors import ModelError
from longhmm.inference.scaling import product
from longhmm.model.hmm import HMM
from longhmm.model.transitions.dirichlet import Transitions
from longhmm.samplers.preconditioning import EmissionBlocks
from longhmm.target.minibatch import Minibatch
from longhmm.target.target import Estimate

FORGETTING = 0.01  # share of the newest estimate of V once the average has seen 1 / FORGETTING steps
# Beyond this mean a Poisson variable is drawn as a normal one: its skewness is 0.01 there. JAX's own draws, accepted by
# differences of large numbers in single precision, are too wide from about ten times this mean on.
MANY = 1e4


def step(
    key: Array, theta: Array, gradient: Array, factor: Array, step_size: Any, covariance: Any = None
) -> tuple[Array, Array]:
    """The next point, and the share of directions in which the gradient's noise alone was too much already; `factor` is
    L, a matrix or the diagonal of one, `covariance` `L^T V L`, or None."""
    if covariance is None:
        noise = jnp.sqrt(2.0 * step_size) * jax.random.normal(key, theta.shape, theta.dtype)
        clipped = jnp.zeros((), theta.dtype)
    else:
        identity = jnp.eye(theta.shape[0], dtype=theta.dtype)
        noise, clipped = normal_with(key, 2.0 * step_size * identity - step_size**2 * covariance)
    drift = scaled(factor, scaled_back(factor, gradient))
    return theta + step_size * drift + scaled(factor, noise), clipped


def normal_with(key: Array, covariance: Array) -> tuple[Array, Array]:
    """A normal draw with a symmetric matrix as covariance, its negative eigenvalues taken as 0; and their share.

    By the symmetric root, which does not depend on the signs and bases that rounding chooses for eigenvectors.
    """
    values, vectors = jnp.linalg.eigh(covariance)
    draw = jax.random.normal(key, values.shape, values.dtype)
    # Rounding makes zero eigenvalues slightly negative; those are not counted.
    slack = 1e-5 * jnp.max(jnp.abs(values))
    clipped = jnp.mean((values < -slack).astype(values.dtype))
    return vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * (vectors.T @ draw)), clipped


def scaled(factor: Array, vector: Array) -> Array:
    """`L v`, for L as a matrix or as a diagonal."""
    return factor * vector if factor.ndim == 1 else product(factor, vector)


def scaled_back(factor: Array, vector: Array) -> Array:
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
        raise ModelError("noise_correction needs at least 2 windows per minibatch, got 1: use more windows.")


def _deviations(values: Array, minibatch: Minibatch) -> Array:
    """`(S, ..., P)`, whose squares add up to V."""
    count = values.shape[0]
    weights = minibatch.weights.reshape((count,) + (1,) * (values.ndim - 1))
    weighted: Array = weights * values
    # A block that is always drawn brings no noise; its weight may come out a little below 1.
    missed = jnp.maximum(1.0 - 1.0 / weights, 0.0)
    return jnp.sqrt(missed * (count / (count - 1.0))) * (weighted - jnp.mean(weighted, axis=0))


def covariance(values: Array, minibatch: Minibatch) -> Array:
    """`V (..., P, P)` from values `(S, ..., P)` of the windows of one minibatch."""
    deviations = _deviations(values, minibatch)
    return jnp.einsum("s...i,s...j->...ij", deviations, deviations)


def variance(values: Array, minibatch: Minibatch) -> Array:
    """The diagonal of V, `(..., P)`."""
    return jnp.sum(_deviations(values, minibatch) ** 2, axis=0)


def averaged(before: Array, now: Array, index: Array) -> Array:
    """The moving average after step `index` (counted from 0): one minibatch says little, and V moves with the chain."""
    return before + (now - before) * jnp.maximum(1.0 / (index + 1.0), FORGETTING)


# The rows of the transition matrix ----------------------------------------------------------------------------------


class Rows(NamedTuple):
    """What the steps need to know of a model's transitions: `(K, K)` concentrations, and True for moving entries."""

    concentration: Any
    moving: np.ndarray

    @staticmethod
    def of(transitions: Transitions) -> Rows:
        """Forbidden entries and fixed rows do not move."""
        moving = transitions.allowed & transitions.free_rows[:, None]
        return Rows(jnp.where(moving, jnp.asarray(transitions.concentration), 0.0), moving)

    def expand(self, transition: Array) -> Array:
        """Ahat with the given rows and the prior mean of every row sum."""
        total = jnp.where(self.moving.any(axis=1), self.concentration.sum(axis=1), 1.0)
        return transition * total.astype(transition.dtype)[:, None]

    def settle(self, before: Array, moved: Array) -> Array:
        """Entries that do not move keep their values; the others stay large enough to have a logarithm."""
        return jnp.where(self.moving, jnp.maximum(moved, float(np.finfo(before.dtype).tiny) * 1e6), before)


def normalised(expanded: Array) -> Array:
    """`A[i, j] = Ahat[i, j] / sum_j Ahat[i, j]`."""
    return expanded / jnp.sum(expanded, axis=1, keepdims=True)


def slope(transitions: Transitions, gradient: Array) -> Array:
    """`Ahat d/dAhat` `(K, K)` from a gradient in coordinates: `n_hat[i, j] - A[i, j] n_hat[i, .]` for a likelihood.

    The coordinates are linear in log Ahat (F16), so that the same transposed map serves at every point.
    """
    origin = jnp.zeros(transitions.concentration.shape, gradient.dtype)
    slopes: Array = jax.vjp(lambda logs: transitions.unconstrain(jnp.exp(logs)), origin)[1](gradient)[0]
    return slopes


@dataclass(frozen=True)
class Mirror:
    """Euler steps, reflected at zero:

        Ahat' = | Ahat + h_i ( a - Ahat + n_hat[i,j] - A[i,j] n_hat[i,.] ) + N(0, 2 h_i Ahat - h_i^2 B_i) |

    with `B_i` the covariance of the noise in `n_hat[i, j] - A[i, j] n_hat[i, .]` over j, or 0. The reflection leaves
    entries without transitions too large: measured at h = 0.02, their mean is 1.5 % high for a = 1, 12 % for a = 1/2,
    and nearly three times too high for a = 1/10.
    """

    def move(
        self, key: Array, rows: Rows, expanded: Array, drift: Array, pace: Array, covariance: Any
    ) -> tuple[Array, Array]:
        """Ahat after one step, and the share of directions whose noise was clipped; `drift` comes from `slope`, `pace`
        is h_i, and `covariance` `(K, K, K)` B_i for every row, or None."""
        scale, width = jnp.sqrt(expanded), pace[:, None]
        if covariance is None:
            noise = jnp.sqrt(2.0 * width) * jax.random.normal(key, expanded.shape, expanded.dtype)
            clipped = jnp.zeros((), expanded.dtype)
        else:
            # Relative to the injected noise: an almost empty entry then is a direction of its own, clipped alone.
            inverse = jnp.where(rows.moving, 1.0 / jnp.where(rows.moving, scale, 1.0), 0.0)
            relative = covariance * inverse[:, :, None] * inverse[:, None, :]
            identity = jnp.eye(expanded.shape[0], dtype=expanded.dtype)
            remaining = 2.0 * width[:, :, None] * identity - (width**2)[:, :, None] * relative
            noise, shares = jax.vmap(normal_with)(jax.random.split(key, expanded.shape[0]), remaining)
            clipped = jnp.mean(shares)
        moved = expanded + width * (rows.concentration - expanded + drift) + scale * noise
        return rows.settle(expanded, jnp.abs(moved)), clipped


@dataclass(frozen=True)
class CoxIngersollRoss:
    """The exact step of the square-root diffusion with frozen coefficients; nothing is reflected, nothing biased at 0:

        alpha = a + n_hat[i,j],  beta = 1 + n_hat[i,.] / sum_j Ahat[i,j],  q = exp(-beta h_i)
        M ~ Poisson( beta q Ahat / (1 - q) ),   Ahat' = ((1 - q) / beta) Gamma(alpha + M, 1)

    Needs counts that cannot be negative: not for control variates.
    """

    def move(self, key: Array, rows: Rows, expanded: Array, counts: Array, pace: Array) -> tuple[Array, Array]:
        """Ahat after one step; `counts (K, K)` is n_hat and `pace (K,)` is h_i. Its noise is never clipped."""
        poisson_key, gamma_key = jax.random.split(key)
        alpha = jnp.where(rows.moving, rows.concentration + jnp.maximum(counts, 0.0), 1.0)
        beta = 1.0 + jnp.sum(counts, axis=1, keepdims=True) / jnp.sum(expanded, axis=1, keepdims=True)
        remaining = -jnp.expm1(-beta * pace[:, None])
        mean = beta * (1.0 - remaining) * expanded / remaining
        moved = remaining / beta * jax.random.gamma(gamma_key, alpha + poisson(poisson_key, mean))
        return rows.settle(expanded, moved), jnp.zeros((), expanded.dtype)


def poisson(key: Array, mean: Array) -> Array:
    """Poisson draws of any mean, as floating-point numbers; where the mean is large they need not be whole.

    JAX draws them from its own generator alone, to whose keys that of compiled loops is equal (see `generator`).
    """
    count_key, normal_key = jax.random.split(key)
    own = jax.random.wrap_key_data(jax.random.key_data(count_key), impl="threefry2x32")
    few = jax.random.poisson(own, jnp.minimum(mean, MANY)).astype(mean.dtype)
    many = mean + jnp.sqrt(mean) * jax.random.normal(normal_key, mean.shape, mean.dtype)
    return jnp.where(mean > MANY, many, few)


# The emission's parameters, all states at once: new coordinates, and the shares of clipped noise directions and of
# refused proposals ---------------------------------------------------------------------------------------------------

EmissionMove = tuple[dict[str, Array], Array, Array]


@dataclass(frozen=True)
class Preconditioned:
    """Unconstrained coordinates u of each state's emission, `D = L L^T` the inverse information, constant:

        u' = u + h D grad log p(u | y) + N(0, 2 h D - h^2 D V D)

    The density is that of u, Jacobian included, and D does not depend on u, so that Gamma = 0 and nothing is ever
    refused. V is the covariance of the gradient's noise, or 0. Serves every emission.
    """

    def move(self, key: Array, model: HMM, state: Any, seen: Estimate, step_size: Any) -> EmissionMove:
        """One step of every block, with `state.factor` `(n, p, p)` as L."""
        blocks, noise, nothing = EmissionBlocks.like(state.coordinates), None, jnp.zeros(())
        if not blocks.size:
            return {}, nothing, nothing
        if state.noise is not None:
            noise = jnp.einsum("nij,nik,nkl->njl", state.factor, state.noise.emission, state.factor)

        def one(key: Array, at: Array, slope: Array, root: Array, known: Any) -> tuple[Array, Array]:
            return step(key, at, slope, root, step_size, known)

        points = blocks.ravel(state.coordinates), blocks.ravel(seen.gradient)
        moved, clipped = jax.vmap(one)(jax.random.split(key, blocks.n_blocks), *points, state.factor, noise)
        return blocks.unravel(moved), jnp.mean(clipped), nothing


@dataclass(frozen=True)
class GaussianMetric:
    """The paper's step for Gaussian means and full covariances; other emissions move as `Preconditioned`.

        mean'  = mean + h Sigma grad_mean + sqrt(2 h) L z
        Sigma' = Sigma + h ( Sigma G Sigma + (d + 1) Sigma ) + sqrt(2 h) L W L^T,      Sigma = L L^T

    `G` is the symmetric gradient of the log posterior with `d log p = tr(G dSigma)`, z standard normal, W symmetric
    with variance 1 on the diagonal and 1/2 off it. The correction is `(d + 1) Sigma` in dimension d; the paper prints
    `Sigma`. As in the paper, a proposal that is not positive definite is refused (the state keeps its covariance),
    which changes the target a little at any finite step size: prefer `Preconditioned` for anything but reproduction.
    """

    def move(self, key: Array, model: HMM, state: Any, seen: Estimate, step_size: Any) -> EmissionMove:
        if not model.emission.has_full_covariance:
            return Preconditioned().move(key, model, state, seen, step_size)
        assert seen.totals is not None
        params = model.constrain(state.coordinates)
        free = {name: params[name] for name in model.emission.free_names}
        prior = jax.grad(lambda at: model.emission.log_prior({**params, **at}))(free)
        slopes = {name: seen.totals.natural[name] + prior[name] for name in free}
        covariance, root = params["covariance"], jnp.linalg.cholesky(params["covariance"])
        mean_key, covariance_key = jax.random.split(key)
        moved, refused, wide = dict(params), jnp.zeros(()), jnp.sqrt(2.0 * step_size)
        if "mean" in free:
            noise = jax.random.normal(mean_key, params["mean"].shape, params["mean"].dtype)
            drift = jnp.einsum("kij,kj->ki", covariance, slopes["mean"])
            moved["mean"] = params["mean"] + step_size * drift + wide * jnp.einsum("kij,kj->ki", root, noise)
        if "covariance" in free:
            # (Z + Z^T) / 2 has variance 1 on the diagonal and 1/2 off it.
            noise = _symmetric(jax.random.normal(covariance_key, covariance.shape, covariance.dtype))
            drift = covariance @ _symmetric(slopes["covariance"]) @ covariance
            drift = drift + (covariance.shape[-1] + 1.0) * covariance
            spread = root @ noise @ jnp.swapaxes(root, -1, -2)
            proposal = _symmetric(covariance + step_size * drift + wide * spread)
            valid = jnp.all(jnp.linalg.eigvalsh(proposal) > 0, axis=-1)
            moved["covariance"] = jnp.where(valid[:, None, None], proposal, covariance)
            refused = 1.0 - jnp.mean(valid.astype(proposal.dtype))
        coordinates = model.unconstrain(moved)
        return {name: coordinates[name] for name in free}, jnp.zeros(()), refused


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + jnp.swapaxes(matrix, -1, -2))
