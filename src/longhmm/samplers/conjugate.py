"""Emission parameters drawn given the states, in closed form, from sums over the rows of each state.

Every conditional here has two functions: `statistics`, what it needs of a block of rows with weights (indicators of
the drawn states), and `draw`, new parameters from the totals. Where a family has two kinds of parameters each is drawn
given the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.model.categories import Bernoulli, Categorical
from longhmm.model.counts import Poisson
from longhmm.model.gaussian import Gaussian
from longhmm.model.hmm import HMM
from longhmm.samplers import conjugate_priors as priors

Params = Mapping[str, jax.Array]
SMALLEST = 1e-300  # a probability that has coordinates


class Conditional(NamedTuple):
    """How the emission's parameters are drawn given the states.

    Attributes:
        statistics: `(params, values (n, D), observed (n, D), weights (n, G)) -> tree` to be summed over rows.
        draw: `(key, params, totals) -> {name: new value}`.
    """

    statistics: Callable[[Params, jax.Array, jax.Array, jax.Array], Any]
    draw: Callable[[jax.Array, Params, Any], dict[str, jax.Array]]


class Moments(NamedTuple):
    """Sums over the observed rows of each group: how many `(G, D)`, of `y - centre` `(G, D)`, and of its products
    `(G, D, D)` or squares `(G, D)` (None where they are not needed)."""

    number: jax.Array
    first: jax.Array
    second: jax.Array | None


def conditional_of(model: HMM, partial_rows: bool) -> Conditional | None:
    """The closed form for a model's emission and priors; None if there is none."""
    emission, levels = priors.grouped(model.emission, model.n_states)
    table = emission.parameters(int(levels.max()) + 1)
    if isinstance(emission, Gaussian):
        if emission.covariance_kind == "full":
            # A row observed in part says something about the rest of it, which no sum over rows holds.
            return None if partial_rows else _full_gaussian(table)
        return _independent_gaussian(table, emission.covariance_kind == "spherical")
    if isinstance(emission, Poisson):
        return _pairs(table, "rate", priors.gamma_prior, _draw_rate)
    if isinstance(emission, Bernoulli):
        return _pairs(table, "probs", priors.beta_prior, _draw_probability)
    return _categorical(table) if isinstance(emission, Categorical) else None


# Gaussian ---------------------------------------------------------------------------------------------------------


def _full_gaussian(table: Any) -> Conditional | None:
    mean_prior, scatter_prior = priors.normal_prior(table["mean"]), priors.inverse_wishart_prior(table["covariance"])
    free_mean, free_scatter = table["mean"].is_free, table["covariance"].is_free
    if (free_mean and mean_prior is None) or (free_scatter and scatter_prior is None):
        return None

    def statistics(params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Moments:
        moved = jnp.where(observed, values - _centre(params), 0.0)
        products = jnp.einsum("tg,ti,tj->gij", weights, moved, moved, optimize=True)
        return Moments(weights.T @ observed.astype(weights.dtype), weights.T @ moved, products)

    def draw(key: jax.Array, params: Params, totals: Moments) -> dict[str, jax.Array]:
        assert totals.second is not None
        scatter_key, mean_key = jax.random.split(key)
        centre, count, covariance, new = _centre(params), totals.number[:, 0], params["covariance"], {}
        if scatter_prior is not None:
            offset = params["mean"] - centre
            cross = totals.first[:, :, None] * offset[:, None, :]
            scatter = totals.second - cross - jnp.swapaxes(cross, 1, 2)
            scatter = scatter + count[:, None, None] * offset[:, :, None] * offset[:, None, :]
            covariance = draw_inverse_wishart(scatter_key, scatter_prior.degrees + count, scatter_prior.scale + scatter)
            new["covariance"] = covariance
        if mean_prior is not None:
            precision = jnp.linalg.inv(covariance)
            new["mean"] = centre + _draw_mean(mean_key, mean_prior, centre, precision, count, totals.first)
        return new

    return Conditional(statistics, draw)


def _independent_gaussian(table: Any, spherical: bool) -> Conditional | None:
    mean_prior, variance_prior = priors.normal_prior(table["mean"]), priors.inverse_gamma_prior(table["variance"])
    if (table["mean"].is_free and mean_prior is None) or (table["variance"].is_free and variance_prior is None):
        return None

    def statistics(params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Moments:
        moved = jnp.where(observed, values - _centre(params), 0.0)
        return Moments(weights.T @ observed.astype(weights.dtype), weights.T @ moved, weights.T @ (moved * moved))

    def draw(key: jax.Array, params: Params, totals: Moments) -> dict[str, jax.Array]:
        assert totals.second is not None
        variance_key, mean_key = jax.random.split(key)
        centre, variance, new = _centre(params), params["variance"], {}
        if variance_prior is not None:
            offset = params["mean"] - centre
            squares = totals.second - 2 * offset * totals.first + totals.number * offset**2
            count = totals.number
            if spherical:
                count, squares = jnp.sum(count, axis=1), jnp.sum(squares, axis=1)
            shape, rate = variance_prior.one + 0.5 * count, variance_prior.two + 0.5 * squares
            variance = rate / jax.random.gamma(variance_key, shape)
            new["variance"] = variance
        if mean_prior is not None:
            wide = jnp.broadcast_to(variance[:, None] if spherical else variance, totals.number.shape)
            # Features may have been observed unequally often: the count goes into the precision, feature by feature.
            information = jax.vmap(jnp.diag)(totals.number / wide)
            linear = totals.first / wide
            new["mean"] = centre + _draw_normal(mean_key, mean_prior, centre, information, linear)
        return new

    return Conditional(statistics, draw)


def _centre(params: Params) -> jax.Array:
    """What is subtracted before squares are summed, so that they keep their digits: the middle of the means."""
    return jnp.mean(params["mean"], axis=0)


def _draw_mean(
    key: jax.Array,
    prior: priors.NormalPrior,
    centre: jax.Array,
    precision: jax.Array,
    count: jax.Array,
    first: jax.Array,
) -> jax.Array:
    linear = jnp.einsum("gij,gj->gi", precision, first)
    return _draw_normal(key, prior, centre, count[:, None, None] * precision, linear)


def _draw_normal(
    key: jax.Array, prior: priors.NormalPrior, centre: jax.Array, information: jax.Array, linear: jax.Array
) -> jax.Array:
    """Normal with the prior's and the data's information added up, as an offset from `centre`."""
    factor = jnp.linalg.cholesky(prior.precision + information)
    total = linear + jnp.einsum("gij,gj->gi", prior.precision, prior.mean - centre)
    noise = jax.random.normal(key, total.shape, total.dtype)
    half = jax.scipy.linalg.solve_triangular(factor, total[..., None], lower=True)[..., 0]
    # Solving with the transpose turns standard noise into the covariance, the inverse of the precision.
    return jax.scipy.linalg.solve_triangular(factor, (half + noise)[..., None], lower=True, trans=1)[..., 0]


def draw_inverse_wishart(key: jax.Array, degrees: Any, scale: Any) -> jax.Array:
    """Covariances `(G, D, D)` with density `|S|^-(degrees + D + 1)/2 exp(-tr(scale S^-1) / 2)`, by Bartlett's way."""
    size = scale.shape[-1]
    normal_key, chi_key = jax.random.split(key)
    below = jnp.tril(jax.random.normal(normal_key, scale.shape, scale.dtype), -1)
    squares = 2.0 * jax.random.gamma(chi_key, 0.5 * (degrees[:, None] - jnp.arange(size)))
    bartlett = below + jax.vmap(jnp.diag)(jnp.sqrt(squares))
    # W = L^-T B B^T L^-1 is Wishart with scale^-1 = L^-T L^-1, and its inverse is X X^T with X = L B^-T.
    factor = jnp.linalg.cholesky(scale)
    half = jax.scipy.linalg.solve_triangular(bartlett, jnp.swapaxes(factor, -1, -2), lower=True)
    return jnp.swapaxes(half, -1, -2) @ half


# Counts and labels ------------------------------------------------------------------------------------------------


def _pairs(table: Any, name: str, read: Callable[[Any], priors.PairPrior | None], law: Any) -> Conditional | None:
    prior, shape = read(table[name]), table[name].shape
    if table[name].is_free and prior is None:
        return None

    def statistics(params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Moments:
        seen = jnp.where(observed, values, 0).astype(weights.dtype)
        return Moments(weights.T @ observed.astype(weights.dtype), weights.T @ seen, None)

    def draw(key: jax.Array, params: Params, totals: Moments) -> dict[str, jax.Array]:
        if prior is None:
            return {}
        return {name: law(key, prior, totals.number.reshape(shape), totals.first.reshape(shape))}

    return Conditional(statistics, draw)


def _draw_rate(key: jax.Array, prior: priors.PairPrior, count: jax.Array, total: jax.Array) -> jax.Array:
    return jnp.exp(jax.random.loggamma(key, prior.one + total)) / (prior.two + count)


def _draw_probability(key: jax.Array, prior: priors.PairPrior, count: jax.Array, ones: jax.Array) -> jax.Array:
    return draw_dirichlet(key, jnp.stack([prior.one + ones, prior.two + count - ones], -1))[..., 0]


def _categorical(table: Any) -> Conditional | None:
    prior = priors.dirichlet_prior(table["probs"])
    if table["probs"].is_free and prior is None:
        return None
    n_categories = table["probs"].shape[-1]

    def statistics(params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> jax.Array:
        labels = jnp.where(observed[:, 0], values[:, 0], 0).astype(jnp.int32)
        return (weights * observed).T @ jax.nn.one_hot(labels, n_categories, dtype=weights.dtype)

    def draw(key: jax.Array, params: Params, totals: jax.Array) -> dict[str, jax.Array]:
        return {} if prior is None else {"probs": draw_dirichlet(key, prior + totals)}

    return Conditional(statistics, draw)


def draw_dirichlet(key: jax.Array, concentration: Any, allowed: np.ndarray | None = None) -> jax.Array:
    """Shares along the last axis, through logarithms, so that tiny concentrations do not underflow to 0."""
    possible = jnp.asarray(True) if allowed is None else jnp.asarray(allowed)
    logs = jax.random.loggamma(key, jnp.where(possible, concentration, 1.0))
    shares = jax.nn.softmax(jnp.where(possible, logs, -jnp.inf), axis=-1)
    return jnp.where(possible, jnp.maximum(shares, SMALLEST), 0.0)
