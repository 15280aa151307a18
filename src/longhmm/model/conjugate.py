"""Updates in closed form: what families offer Gibbs sampling, EM and variational inference, and what they share.

Parameters are stacked over levels, `(G, ...)`: as many as states, unless states are tied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.model.parameters import Parameter

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


class Moments(NamedTuple):
    """Sums over the observed rows of each level: how many `(G, D)`, of `y - centre` `(G, D)`, and of its products
    `(G, D, D)` or squares `(G, D)` (None where they are not needed)."""

    number: jax.Array
    first: jax.Array
    second: Any = None


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


class OneParameter:
    """Both for a family whose one parameter, given data, has a distribution `q` of the kind of its prior.

    The family reads `conjugate_prior` off the parameter, None where it is of another kind, and says how `q` is
    `updated` from the prior, what log density is `expected` under it, its mean (`mean_of`) and a draw (`draw_from`).
    """

    conjugate_prior: Callable[[Parameter], Any]
    updated: Callable[[Any, Any], Any]
    expected: Callable[[Any, jax.Array, jax.Array], jax.Array]
    mean_of: Callable[[Any], jax.Array]
    draw_from: Callable[[jax.Array, Any], jax.Array]
    parameters: Callable[[int], dict[str, Parameter]]

    def statistics(self, params: Params, values: jax.Array, observed: jax.Array, weights: jax.Array) -> Any:
        """Numbers and sums of what was observed."""
        seen = jnp.where(observed, values, 0).astype(weights.dtype)
        return Moments(weights.T @ observed.astype(weights.dtype), weights.T @ seen)

    def pretended(self, mean: jax.Array, count: jax.Array) -> Any:
        """As if each level had `count` rows whose mean is the parameter."""
        number = jnp.broadcast_to(count[:, None], columns(mean).shape)
        return Moments(number, number * columns(mean))

    def conditional(self, n_levels: int, *, partial_rows: bool) -> Conditional | None:
        ((name, parameter),) = self.parameters(n_levels).items()
        prior = self.conjugate_prior(parameter)
        if parameter.is_free and prior is None:
            return None

        def draw(key: jax.Array, params: Params, totals: Any) -> dict[str, jax.Array]:
            return {name: self.draw_from(key, self.updated(prior, totals))} if parameter.is_free else {}

        return Conditional(self.statistics, draw)

    def approximation(self, n_levels: int, centre: Any) -> Approximation | None:
        ((name, parameter),) = self.parameters(n_levels).items()
        prior = self.conjugate_prior(parameter)
        if prior is None:
            return None
        return Approximation(
            self.statistics,
            lambda params, count: self.pretended(params[name], count),
            lambda q, sums: self.updated(prior, sums),
            jax.tree.map(jnp.asarray, prior),
            self.expected,
            lambda q: {name: self.mean_of(q)},
            lambda key, q: {name: self.draw_from(key, q)},
        )


def columns(numbers: jax.Array) -> jax.Array:
    """`(G,)` or `(G, D)` as `(G, D)`."""
    return numbers.reshape(numbers.shape[0], -1)


def draw_dirichlet(key: jax.Array, concentration: Any, allowed: np.ndarray | None = None) -> jax.Array:
    """Shares along the last axis, through logarithms, so that tiny concentrations do not underflow to 0."""
    possible = jnp.asarray(True) if allowed is None else jnp.asarray(allowed)
    logs = jax.random.loggamma(key, jnp.where(possible, concentration, 1.0))
    shares = jax.nn.softmax(jnp.where(possible, logs, -jnp.inf), axis=-1)
    return jnp.where(possible, jnp.maximum(shares, SMALLEST), 0.0)


# Priors --------------------------------------------------------------------------------------------------------------


class RootInverseGamma(Distribution):
    """A standard deviation whose square is inverse gamma with `concentration` and `rate`.

    It is conjugate to the standard deviation of normal observations, as the inverse gamma is to their variance.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = dist.InverseGamma.arg_constraints
    support = constraints.positive
    pytree_data_fields = ("concentration", "rate")

    def __init__(self, concentration: ArrayLike, rate: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = concentration, rate
        batch = jnp.broadcast_shapes(jnp.shape(concentration), jnp.shape(rate))
        super().__init__(batch_shape=batch, validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """The root of a drawn variance."""
        return jnp.sqrt(dist.InverseGamma(self.concentration, self.rate).sample(key, sample_shape))

    def log_prob(self, value: ArrayLike) -> jax.Array:
        """Log density of the variance times `d variance / d sd = 2 sd`, a number also where its square is none."""
        sd, shape, rate = jnp.asarray(value), jnp.asarray(self.concentration), jnp.asarray(self.rate)
        constant = shape * jnp.log(rate) - gammaln(shape) + jnp.log(2.0)
        return constant - (2.0 * shape + 1.0) * jnp.log(sd) - rate / (sd * sd)


# The numbers of conjugate priors; None for a prior of another kind, and of a fixed parameter --------------------------


class NormalPrior(NamedTuple):
    """A vector of each level is normal: `mean` `(G, D)`, `precision` `(G, D, D)`, zero for a flat prior."""

    mean: Any
    precision: Any


class InverseWishartPrior(NamedTuple):
    """A covariance of each level is inverse Wishart: `degrees` `(G,)`, `scale` `(G, D, D)`; zero for a flat prior."""

    degrees: Any
    scale: Any


class Pair(NamedTuple):
    """Two numbers per value: shape and rate of a gamma or inverse gamma, both concentrations of a beta."""

    one: Any
    two: Any


def is_flat(parameter: Parameter) -> bool:
    """Whether the prior is no distribution."""
    return type(_bare(parameter)) is dist.ImproperUniform


def normal_prior(parameter: Parameter) -> NormalPrior | None:
    """For the means `(G, D)`, or `(G,)`, of a Gaussian: normal, multivariate normal, or flat."""
    prior, shape = _bare(parameter), (parameter.shape[0], int(np.prod(parameter.shape[1:], dtype=int)))
    if type(prior) is dist.Normal:
        loc, scale = (_spread(each, parameter.shape).reshape(shape) for each in (prior.loc, prior.scale))
        return NormalPrior(loc, (scale**-2.0)[..., None] * np.eye(shape[1]))
    if type(prior) is dist.MultivariateNormal:
        factor = prior.scale_tril
        precision = _numbers(factor).linalg.inv(factor @ factor.swapaxes(-1, -2))
        return NormalPrior(_spread(prior.loc, shape), _spread(precision, (*shape, shape[1])))
    return flat_normal(shape) if is_flat(parameter) else None


def flat_normal(shape: tuple[int, ...]) -> NormalPrior:
    """No information about means `(G, D)`."""
    return NormalPrior(np.zeros(shape), np.zeros((*shape, shape[-1])))


def inverse_wishart_prior(parameter: Parameter) -> InverseWishartPrior | None:
    """For the covariance of a Gaussian: inverse Wishart, or flat."""
    prior = _bare(parameter)
    if type(prior) is not dist.InverseWishart:
        return flat_wishart(parameter.shape) if is_flat(parameter) else None
    factor = _spread(prior.base_dist.scale_tril, parameter.shape)
    degrees = _spread(prior.base_dist.concentration, parameter.shape[:1])
    return InverseWishartPrior(degrees, factor @ np.swapaxes(factor, -1, -2))


def flat_wishart(shape: tuple[int, ...]) -> InverseWishartPrior:
    """No information about covariances `(G, D, D)`: `|S|^-(degrees + D + 1)/2` is 1."""
    return InverseWishartPrior(np.full(shape[0], -(shape[1] + 1.0)), np.zeros(shape))


def flat_inverse_gamma(shape: tuple[int, ...]) -> Pair:
    """No information about variances: `v^-(shape + 1)` is 1."""
    return Pair(np.full(shape, -1.0), np.zeros(shape))


def _pair(flat: tuple[float, float], known: dict[type, Callable[[Any], Any]]) -> Callable[[Parameter], Pair | None]:
    """A reader of priors of two numbers, by the kind of distribution, and of the flat one."""

    def read(parameter: Parameter) -> Pair | None:
        prior, shape = _bare(parameter), parameter.shape
        if is_flat(parameter):
            return Pair(*(np.full(shape, each) for each in flat))
        numbers = known.get(type(prior))
        return None if numbers is None else Pair(*(_spread(each, shape) for each in numbers(prior)))

    return read


def _shape_and_rate(prior: Any) -> tuple[Any, Any]:
    return prior.concentration, prior.rate


inverse_gamma_prior = _pair((-1.0, 0.0), {dist.InverseGamma: _shape_and_rate})
# Flat in the standard deviation is v^-1/2 in the variance.
root_inverse_gamma_prior = _pair((-0.5, 0.0), {RootInverseGamma: _shape_and_rate})
gamma_prior = _pair((1.0, 0.0), {dist.Gamma: _shape_and_rate, dist.Exponential: lambda prior: (1.0, prior.rate)})
beta_prior = _pair((1.0, 1.0), {dist.Beta: lambda prior: (prior.concentration1, prior.concentration0)})


def dirichlet_prior(parameter: Parameter) -> Any:
    """For shares `(G, C)`: Dirichlet or flat; the concentrations."""
    prior = _bare(parameter)
    if type(prior) is dist.Dirichlet:
        return _spread(prior.concentration, parameter.shape)
    return np.ones(parameter.shape) if is_flat(parameter) else None


def _bare(parameter: Parameter) -> Any:
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
