"""Updates in closed form: what families offer Gibbs sampling, EM and variational inference, and what they share.

Parameters are stacked over levels, `(G, ...)`: as many as states, unless states are tied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist

from longhmm.model.parameters import Parameter
from longhmm.model.priors import RootInverseGamma

Params = Mapping[str, jax.Array]
SMALLEST = 1e-300  # a probability that has coordinates


class Sums(NamedTuple):
    """Expected sufficient statistics of an exponential family.

    Attributes:
        statistics: `(K, n_stats)`, `sum_t gamma_t(k) s(y_t - centre)`.
        counts: `(K,)`, `sum_t gamma_t(k)` over observed times.
        centre: `(D,)`, see `Emission.centre`.
    """

    statistics: np.ndarray
    counts: np.ndarray
    centre: np.ndarray


class Conditional(NamedTuple):
    """How the emission's parameters are drawn given the states.

    Where a family has two kinds of parameters each is drawn given the other.

    Attributes:
        statistics: `(params, values (n, D), observed (n, D), weights (n, G)) -> tree` to be summed over rows; weights
            are indicators of the drawn states, or their probabilities.
        draw: `(key, params, totals) -> {name: new value}`.
    """

    statistics: Callable[[Params, jax.Array, jax.Array, jax.Array], Any]
    draw: Callable[[jax.Array, Params, Any], dict[str, jax.Array]]


class Approximation(NamedTuple):
    """A mean-field family `q` of variational inference for the emission.

    Attributes:
        statistics: the sums it is made from, as in `Conditional`.
        pretend: `(params, count (G,)) -> sums` as if each level had that many rows with these parameters.
        update: `(q, sums) -> q`, the best `q` given sums (a few rounds where its factors depend on one another).
        start: `q` before any data: the prior, where it is proper.
        expected: `(q, values (n, D), observed (n, D)) -> (n, G)`, `E_q log p(y | level)`.
        mean: `q -> params`; `draw`: `(key, q) -> params`.
    """

    statistics: Callable[[Params, jax.Array, jax.Array, jax.Array], Any]
    pretend: Callable[[Any, jax.Array], Any]
    update: Callable[[Any, Any], Any]
    start: Any
    expected: Callable[[Any, jax.Array, jax.Array], jax.Array]
    mean: Callable[[Any], dict[str, jax.Array]]
    draw: Callable[[jax.Array, Any], dict[str, jax.Array]]


class Moments(NamedTuple):
    """Sums over the observed rows of each level: how many `(G, D)`, of `y - centre` `(G, D)`, and of its products
    `(G, D, D)` or squares `(G, D)` (None where they are not needed)."""

    number: jax.Array
    first: jax.Array
    second: jax.Array | None


# Priors, read off NumPyro's distributions --------------------------------------------------------------------------


class NormalPrior(NamedTuple):
    """A vector of each level is normal: `mean` `(G, D)`, `precision` `(G, D, D)`, zero for a flat prior."""

    mean: Any
    precision: Any


class InverseWishartPrior(NamedTuple):
    """A covariance of each level is inverse Wishart: `degrees` `(G,)`, `scale` `(G, D, D)`; zero for a flat prior."""

    degrees: Any
    scale: Any


class PairPrior(NamedTuple):
    """Two numbers per value: shape and rate of a gamma or inverse gamma, both concentrations of a beta."""

    one: Any
    two: Any


def is_flat(parameter: Parameter) -> bool:
    """Whether the prior is no distribution."""
    return type(bare_prior(parameter)) is dist.ImproperUniform


def normal_prior(parameter: Parameter) -> NormalPrior | None:
    """For the means `(G, D)`, or `(G,)`, of a Gaussian: normal, multivariate normal, or flat; None for any other."""
    prior, shape = bare_prior(parameter), (parameter.shape[0], int(np.prod(parameter.shape[1:], dtype=int)))
    if type(prior) is dist.Normal:
        loc, scale = (_spread(each, parameter.shape).reshape(shape) for each in (prior.loc, prior.scale))
        return NormalPrior(loc, (scale**-2.0)[..., None] * np.eye(shape[1]))
    if type(prior) is dist.MultivariateNormal:
        factor = prior.scale_tril
        precision = _numbers(factor).linalg.inv(factor @ factor.swapaxes(-1, -2))
        return NormalPrior(_spread(prior.loc, shape), _spread(precision, (*shape, shape[1])))
    return flat_normal(shape) if type(prior) is dist.ImproperUniform else None


def flat_normal(shape: tuple[int, ...]) -> NormalPrior:
    """No information about means `(G, D)`."""
    return NormalPrior(np.zeros(shape), np.zeros((*shape, shape[-1])))


def inverse_wishart_prior(parameter: Parameter) -> InverseWishartPrior | None:
    """For the covariance of a Gaussian: inverse Wishart, or flat."""
    prior = bare_prior(parameter)
    if type(prior) is not dist.InverseWishart:
        return flat_wishart(parameter.shape) if type(prior) is dist.ImproperUniform else None
    factor = _spread(prior.base_dist.scale_tril, parameter.shape)
    degrees = _spread(prior.base_dist.concentration, parameter.shape[:1])
    return InverseWishartPrior(degrees, factor @ np.swapaxes(factor, -1, -2))


def flat_wishart(shape: tuple[int, ...]) -> InverseWishartPrior:
    """No information about covariances `(G, D, D)`: `|S|^-(degrees + D + 1)/2` is 1."""
    return InverseWishartPrior(np.full(shape[0], -(shape[1] + 1.0)), np.zeros(shape))


def inverse_gamma_prior(parameter: Parameter) -> PairPrior | None:
    """For a variance: shape and rate."""
    prior = bare_prior(parameter)
    if type(prior) is not dist.InverseGamma:
        return flat_inverse_gamma(parameter.shape) if type(prior) is dist.ImproperUniform else None
    return PairPrior(_spread(prior.concentration, parameter.shape), _spread(prior.rate, parameter.shape))


def root_inverse_gamma_prior(parameter: Parameter) -> PairPrior | None:
    """For a standard deviation: shape and rate of the inverse gamma distribution of its square."""
    prior = bare_prior(parameter)
    if type(prior) is RootInverseGamma:
        return PairPrior(_spread(prior.concentration, parameter.shape), _spread(prior.rate, parameter.shape))
    if type(prior) is dist.ImproperUniform:  # flat in the standard deviation is v^-1/2 in the variance
        return PairPrior(np.full(parameter.shape, -0.5), np.zeros(parameter.shape))
    return None


def flat_inverse_gamma(shape: tuple[int, ...]) -> PairPrior:
    """No information about variances: `v^-(shape + 1)` is 1."""
    return PairPrior(np.full(shape, -1.0), np.zeros(shape))


def gamma_prior(parameter: Parameter) -> PairPrior | None:
    """For a rate: gamma, exponential, or flat; shape and rate."""
    prior, shape = bare_prior(parameter), parameter.shape
    if type(prior) is dist.Gamma:
        return PairPrior(_spread(prior.concentration, shape), _spread(prior.rate, shape))
    if type(prior) is dist.Exponential:
        return PairPrior(np.ones(shape), _spread(prior.rate, shape))
    if type(prior) is dist.ImproperUniform:
        return PairPrior(np.ones(shape), np.zeros(shape))
    return None


def beta_prior(parameter: Parameter) -> PairPrior | None:
    """For the probability of a one: beta, or flat; both concentrations."""
    prior, shape = bare_prior(parameter), parameter.shape
    if type(prior) is dist.Beta:
        return PairPrior(_spread(prior.concentration1, shape), _spread(prior.concentration0, shape))
    return PairPrior(np.ones(shape), np.ones(shape)) if type(prior) is dist.ImproperUniform else None


def dirichlet_prior(parameter: Parameter) -> Any:
    """For shares `(G, C)`: Dirichlet or flat; the concentrations."""
    prior = bare_prior(parameter)
    if type(prior) is dist.Dirichlet:
        return _spread(prior.concentration, parameter.shape)
    return np.ones(parameter.shape) if type(prior) is dist.ImproperUniform else None


def bare_prior(parameter: Parameter) -> Any:
    """The prior of one value, without what only repeats it."""
    prior = parameter.prior
    while isinstance(prior, dist.ExpandedDistribution | dist.Independent):
        prior = prior.base_dist
    return prior


def _spread(given: Any, shape: tuple[int, ...]) -> Any:
    """Numbers repeated in a shape."""
    numbers = _numbers(given)
    return numbers.broadcast_to(numbers.asarray(given, float), shape)


def _numbers(given: Any) -> Any:
    """NumPy, or JAX inside compiled code."""
    return jnp if isinstance(given, jax.Array) else np


# One parameter with a prior of two numbers ---------------------------------------------------------------------------


def pair_conditional(parameter: Parameter, prior: PairPrior | None, draw_value: Any) -> Conditional | None:
    """For counts and zeros and ones: `draw_value(key, prior, count, total)` gives the new value."""
    if parameter.is_free and prior is None:
        return None
    name, shape = parameter.name, parameter.shape

    def draw(key: jax.Array, params: Params, totals: Moments) -> dict[str, jax.Array]:
        if prior is None:
            return {}
        return {name: draw_value(key, prior, totals.number.reshape(shape), totals.first.reshape(shape))}

    return Conditional(first_moments, draw)


def pair_sums(parameter: Parameter, params: Params, count: jax.Array) -> Moments:
    """Moments as if each level had `count` rows whose mean is the parameter."""
    means = columns(parameter, params[parameter.name])
    number = jnp.broadcast_to(count[:, None], means.shape)
    return Moments(number, number * means, None)


def first_moments(params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Moments:
    """Numbers and sums of what was observed."""
    seen = jnp.where(observed, values, 0).astype(weights.dtype)
    return Moments(weights.T @ observed.astype(weights.dtype), weights.T @ seen, None)


def columns(parameter: Parameter, numbers: jax.Array) -> jax.Array:
    """`(G,)` or `(G, D)` as `(G, D)`."""
    return numbers.reshape(parameter.shape[0], -1)


def draw_dirichlet(key: jax.Array, concentration: Any, allowed: np.ndarray | None = None) -> jax.Array:
    """Shares along the last axis, through logarithms, so that tiny concentrations do not underflow to 0."""
    possible = jnp.asarray(True) if allowed is None else jnp.asarray(allowed)
    logs = jax.random.loggamma(key, jnp.where(possible, concentration, 1.0))
    shares = jax.nn.softmax(jnp.where(possible, logs, -jnp.inf), axis=-1)
    return jnp.where(possible, jnp.maximum(shares, SMALLEST), 0.0)
