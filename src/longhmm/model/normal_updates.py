"""Means and (co)variances of normal observations, updated in closed form.

A normal prior on the mean and an inverse Wishart (inverse gamma) one on the covariance (variances), or flat ones, are
conjugate given each other. Everything is stacked over levels: `mean (G, D)`, `covariance (G, D, D)`, `variance (G, D)`,
or `(G,)` where all features share one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import digamma

from longhmm.model.conjugate import (
    Approximation,
    Conditional,
    InverseWishartPrior,
    Moments,
    NormalPrior,
    Pair,
    Params,
    Sums,
)
from longhmm.model.covariance import LOG_2PI

ROUNDS = 200
SETTLED = 1e-13  # relative change of the mean after which the rounds of the M step end


def _about(mean: Any, count: Any, first: Any, second: Any) -> Any:
    """Sums of products `(G, D, D)` about a mean, from those about 0."""
    cross = mean[:, :, None] * first[:, None, :]
    return second - cross - cross.swapaxes(1, 2) + count[:, None, None] * mean[:, :, None] * mean[:, None, :]


def _times(matrices: Any, vectors: Any) -> Any:
    numbers = np if isinstance(matrices, np.ndarray) and isinstance(vectors, np.ndarray) else jnp
    return numbers.einsum("gij,gj->gi", matrices, vectors)


# The M step --------------------------------------------------------------------------------------------------------


def normal_mode(
    prior: NormalPrior, sums: Sums, start: np.ndarray | None, spread_about: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The best means and covariances: each is known given the other, and a few rounds settle both.

    `spread_about` gives the best covariances for given means, relative to the centre of the sums. None where a level
    has too few observations, or a covariance is not positive definite.
    """
    centre, counts, weights = sums.centre, sums.counts, np.asarray(prior.precision)
    if np.any(counts <= len(centre)):
        return None
    first = sums.statistics[:, : len(centre)]
    mean = first / counts[:, None] if start is None else start - centre
    for _ in range(ROUNDS):
        spread = spread_about(mean)
        if not np.linalg.eigvalsh(spread).min() > 0:
            return None
        inverse = np.linalg.inv(spread)
        right = _times(inverse, first) + _times(weights, np.asarray(prior.mean) - centre)
        new = np.linalg.solve(counts[:, None, None] * inverse + weights, right[..., None])[..., 0]
        change = np.abs(new - mean).max() / (np.abs(new).max() + 1e-300)
        mean = new
        if change < SETTLED:
            break
    return mean + centre, spread_about(mean)


def best_covariance(sums: Sums, prior: InverseWishartPrior, mean: np.ndarray) -> np.ndarray:
    """From sums of `(y, y_i y_j for i <= j)`."""
    dim, counts = mean.shape[1], sums.counts
    rows, columns = np.triu_indices(dim)
    moments = np.zeros((len(counts), dim, dim))
    moments[:, rows, columns] = moments[:, columns, rows] = sums.statistics[:, dim:]
    weight = counts + np.asarray(prior.degrees) + dim + 1
    about = _about(mean, counts, sums.statistics[:, :dim], moments)
    return np.asarray((about + np.asarray(prior.scale)) / weight[:, None, None])


def best_variance(sums: Sums, prior: Pair, mean: np.ndarray, *, shared: bool) -> np.ndarray:
    """From sums of `(y, y_i^2)`, or `(y, sum_i y_i^2)` where features share one variance; as covariances."""
    dim, counts = mean.shape[1], sums.counts[:, None]
    moved = 2 * mean * sums.statistics[:, :dim] - counts * mean**2
    squares = sums.statistics[:, dim:] - (moved.sum(axis=1, keepdims=True) if shared else moved)
    shape, rate = (np.asarray(each).reshape(len(counts), -1) for each in prior)
    variance = (squares + 2.0 * rate) / ((dim if shared else 1) * counts + 2.0 * shape + 2.0)
    return np.broadcast_to(variance, mean.shape)[:, :, None] * np.eye(dim)


# Gibbs sampling ----------------------------------------------------------------------------------------------------


def full_conditional(mean_prior: NormalPrior | None, scatter_prior: InverseWishartPrior | None) -> Conditional:
    """For `mean` and `covariance`; a parameter without a prior here is fixed. Rows are observed whole or not at all."""

    def statistics(params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Moments:
        moved = jnp.where(observed, values - _centre(params), 0.0)
        products = jnp.einsum("tg,ti,tj->gij", weights, moved, moved, optimize=True)
        return Moments(weights.T @ observed.astype(weights.dtype), weights.T @ moved, products)

    def draw(key: jax.Array, params: Params, totals: Moments) -> dict[str, jax.Array]:
        scatter_key, mean_key = jax.random.split(key)
        centre, count, covariance, new = _centre(params), totals.number[:, 0], params["covariance"], {}
        if scatter_prior is not None:
            scatter = _about(params["mean"] - centre, count, totals.first, totals.second)
            covariance = draw_inverse_wishart(scatter_key, scatter_prior.degrees + count, scatter_prior.scale + scatter)
            new["covariance"] = covariance
        if mean_prior is not None:
            precision = jnp.linalg.inv(covariance)
            information, linear = count[:, None, None] * precision, _times(precision, totals.first)
            new["mean"] = centre + _draw_normal(mean_key, mean_prior, centre, information, linear)
        return new

    return Conditional(statistics, draw)


def independent_conditional(
    mean_prior: NormalPrior | None, variance_prior: Pair | None, *, shared: bool
) -> Conditional:
    """For `mean` and `variance`; a parameter without a prior here is fixed."""

    def statistics(params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Moments:
        moved = jnp.where(observed, values - _centre(params), 0.0)
        return Moments(weights.T @ observed.astype(weights.dtype), weights.T @ moved, weights.T @ (moved * moved))

    def draw(key: jax.Array, params: Params, totals: Moments) -> dict[str, jax.Array]:
        variance_key, mean_key = jax.random.split(key)
        centre, variance, new = _centre(params), params["variance"], {}
        if variance_prior is not None:
            offset, count = params["mean"] - centre, totals.number
            squares = totals.second - 2 * offset * totals.first + count * offset**2
            if shared:
                count, squares = jnp.sum(count, axis=1), jnp.sum(squares, axis=1)
            shape, rate = variance_prior.one + 0.5 * count, variance_prior.two + 0.5 * squares
            variance = new["variance"] = rate / jax.random.gamma(variance_key, shape)
        if mean_prior is not None:
            wide = jnp.broadcast_to(variance[:, None] if shared else variance, totals.number.shape)
            # Features may have been observed unequally often: the count goes into the precision, feature by feature.
            information = jax.vmap(jnp.diag)(totals.number / wide)
            new["mean"] = centre + _draw_normal(mean_key, mean_prior, centre, information, totals.first / wide)
        return new

    return Conditional(statistics, draw)


def _centre(params: Params) -> jax.Array:
    """What is subtracted before squares are summed, so that they keep their digits: the middle of the means."""
    return jnp.mean(params["mean"], axis=0)


def _draw_normal(
    key: jax.Array, prior: NormalPrior, centre: jax.Array, information: jax.Array, linear: jax.Array
) -> jax.Array:
    """Normal with the prior's and the data's information added up, as an offset from `centre`."""
    factor = jnp.linalg.cholesky(prior.precision + information)
    total = linear + _times(prior.precision, prior.mean - centre)
    noise = jax.random.normal(key, total.shape, total.dtype)
    half = solve_triangular(factor, total[..., None], lower=True)[..., 0]
    # Solving with the transpose turns standard noise into the covariance, the inverse of the precision.
    return solve_triangular(factor, (half + noise)[..., None], lower=True, trans=1)[..., 0]


def draw_inverse_wishart(key: jax.Array, degrees: Any, scale: Any) -> jax.Array:
    """Covariances `(G, D, D)` with density `|S|^-(degrees + D + 1)/2 exp(-tr(scale S^-1) / 2)`, by Bartlett's way."""
    size = scale.shape[-1]
    normal_key, chi_key = jax.random.split(key)
    below = jnp.tril(jax.random.normal(normal_key, scale.shape, scale.dtype), -1)
    squares = 2.0 * jax.random.gamma(chi_key, 0.5 * (degrees[:, None] - jnp.arange(size)))
    bartlett = below + jax.vmap(jnp.diag)(jnp.sqrt(squares))
    # W = L^-T B B^T L^-1 is Wishart with scale^-1 = L^-T L^-1, and its inverse is X X^T with X = L B^-T.
    half = solve_triangular(bartlett, jnp.linalg.cholesky(scale).swapaxes(-1, -2), lower=True)
    return half.swapaxes(-1, -2) @ half


# Variational inference ---------------------------------------------------------------------------------------------


class GaussianQ(NamedTuple):
    """`mean` of a level is normal with `loc` and `spread` (a covariance), its covariance inverse Wishart."""

    loc: jax.Array
    spread: jax.Array
    degrees: jax.Array
    scale: jax.Array

    @property
    def precision(self) -> jax.Array:
        """The mean of the inverse covariance."""
        return self.degrees[:, None, None] * jnp.linalg.inv(self.scale)


def gaussian_approximation(normal: NormalPrior, wishart: InverseWishartPrior, centre: Any) -> Approximation:
    """For `mean` and `covariance`; `centre` `(D,)` is subtracted from observations."""
    middle = jnp.asarray(centre)
    size, prior_loc = middle.shape[0], normal.mean - middle
    conditional = full_conditional(normal, wishart)

    def statistics(params: Any, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Any:
        return conditional.statistics({"mean": middle[None]}, values, observed, weights)

    def pretend(params: Any, count: jax.Array) -> Moments:
        offset, n = params["mean"] - middle, count[:, None]
        products = params["covariance"] + offset[:, :, None] * offset[:, None, :]
        return Moments(jnp.broadcast_to(n, offset.shape), n * offset, n[:, None] * products)

    def update(q: GaussianQ, sums: Moments) -> GaussianQ:
        count = sums.number[:, 0]
        for _ in range(3):
            information = normal.precision + count[:, None, None] * q.precision
            linear = _times(normal.precision, prior_loc) + _times(q.precision, sums.first)
            loc, spread = jnp.linalg.solve(information, linear[..., None])[..., 0], jnp.linalg.inv(information)
            around = _about(loc, count, sums.first, sums.second) + count[:, None, None] * spread
            scale = wishart.scale + 0.5 * (around + jnp.swapaxes(around, 1, 2))
            q = GaussianQ(loc, spread, wishart.degrees + count, scale)
        return q

    def expected(q: GaussianQ, values: jax.Array, observed: jax.Array) -> jax.Array:
        whole = jnp.all(observed, axis=-1)
        log_det = jnp.linalg.slogdet(q.scale)[1] - size * jnp.log(2.0)
        log_det = log_det - jnp.sum(digamma(0.5 * (q.degrees[:, None] - jnp.arange(size))), axis=1)
        residual = jnp.where(whole[:, None], values - middle, 0.0)[:, None, :] - q.loc
        distance = jnp.einsum("tgi,gij,tgj->tg", residual, q.precision, residual)
        distance = distance + jnp.einsum("gij,gji->g", q.precision, q.spread)
        return jnp.where(whole[:, None], -0.5 * (distance + log_det + size * LOG_2PI), 0.0)

    def mean(q: GaussianQ) -> dict[str, jax.Array]:
        # The mean of an inverse Wishart needs more than D + 1 degrees of freedom; its mode always exists.
        divisor = jnp.where(q.degrees > size + 1.5, q.degrees - size - 1.0, q.degrees + size + 1.0)
        return {"mean": q.loc + middle, "covariance": q.scale / divisor[:, None, None]}

    def draw(key: jax.Array, q: GaussianQ) -> dict[str, jax.Array]:
        mean_key, scatter_key = jax.random.split(key)
        noise = jax.random.normal(mean_key, q.loc.shape, q.loc.dtype)
        moved = _times(jnp.linalg.cholesky(q.spread), noise)
        return {"mean": q.loc + middle + moved, "covariance": draw_inverse_wishart(scatter_key, q.degrees, q.scale)}

    spread = jnp.linalg.inv(normal.precision + 1e-6 * jnp.eye(size))
    start = GaussianQ(jnp.asarray(prior_loc), spread, jnp.asarray(wishart.degrees), jnp.asarray(wishart.scale))
    return Approximation(statistics, pretend, update, start, expected, mean, draw)
