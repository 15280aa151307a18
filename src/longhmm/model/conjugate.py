"""Updates in closed form, from the natural parameters of a conjugate prior plus sums of statistics over rows: Gibbs
sampling draws from the distribution they make, EM takes its mode, variational inference moves towards it. Parameters
are stacked over levels, `(G, ...)`: as many as states, unless states are tied."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from jax.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.model.parameters import Parameter

Params = Mapping[str, jax.Array]
SMALLEST = 1e-300  # a probability that has coordinates


@dataclass(frozen=True)
class OneParameter:
    """One parameter, whose distribution `q` has the natural parameters of the prior plus sums of statistics of rows."""

    name: str
    start: Any  # `(G, ...)`, natural parameters of its prior: `q` before any data; None where it is fixed
    # `(values, observed) -> (n, ...)`, statistics of rows, 0 where nothing is observed; their mean at a value of the
    # parameter; `q ->` the mean of what they are multiplied with in a log density.
    rows: Callable[[jax.Array, jax.Array], jax.Array]
    rows_at: Callable[[jax.Array], jax.Array]
    factors: Callable[[jax.Array], jax.Array]
    mean: Callable[[jax.Array], dict[str, jax.Array]]  # of the parameter, under `q`
    draw: Callable[[jax.Array, jax.Array], dict[str, jax.Array]]  # from `q`
    log_base_measure: Callable[[jax.Array, jax.Array], jax.Array] | None = None  # `(n, 1)`, the same for all levels

    def statistics(self, values: jax.Array, observed: jax.Array, weights: jax.Array) -> jax.Array:
        """Sums over rows `(n, D)`; weights `(n, G)` are indicators of the drawn levels, or their probabilities."""
        return weights.T @ _flat(self.rows(values, observed).astype(weights.dtype))

    def draw_given(self, key: jax.Array, params: Params, sums: jax.Array) -> dict[str, jax.Array]:
        """For Gibbs sampling: new values of what is free."""
        return {} if self.start is None else self.draw(key, self.update(None, sums))

    def pretend(self, params: Params, count: jax.Array) -> jax.Array:
        """Sums as if each level had `count (G,)` rows with these parameters."""
        return count[:, None] * _flat(self.rows_at(params[self.name]))

    def update(self, q: Any, sums: jax.Array) -> jax.Array:
        """The best `q` given sums."""
        return jnp.asarray(self.start) + sums.reshape(self.start.shape)

    def expected(self, q: jax.Array, values: jax.Array, observed: jax.Array) -> jax.Array:
        """`(n, G)`, `E_q log p(y | level)`."""
        logs = _flat(self.rows(values, observed).astype(q.dtype)) @ _flat(self.factors(q)).T
        return logs if self.log_base_measure is None else logs + self.log_base_measure(values, observed)


def one_parameter(
    parameter: Parameter, kinds: tuple[type, ...], flat: tuple[float, ...], **functions: Any
) -> OneParameter | None:
    """For a prior of these kinds, or a flat one, whose numbers are stacked along the last axis; None for others."""
    prior = prior_numbers(parameter, kinds, flat)
    if prior is None:
        return None if parameter.is_free else OneParameter(parameter.name, None, **functions)
    return OneParameter(parameter.name, prior[0] if len(prior) == 1 else jnp.stack(prior, -1), **functions)


def _flat(numbers: jax.Array) -> jax.Array:
    return numbers.reshape(numbers.shape[0], -1)


def expected_log_shares(concentration: jax.Array) -> jax.Array:
    """`E log p` of Dirichlet shares along the last axis."""
    return digamma(concentration) - digamma(jnp.sum(concentration, axis=-1, keepdims=True))


def draw_dirichlet(key: jax.Array, concentration: Any, allowed: np.ndarray | None = None) -> jax.Array:
    """Shares along the last axis, through logarithms, so that tiny concentrations do not underflow to 0."""
    possible = jnp.asarray(True) if allowed is None else jnp.asarray(allowed)
    logs = jax.random.loggamma(key, jnp.where(possible, concentration, 1.0))
    shares = jax.nn.softmax(jnp.where(possible, logs, -jnp.inf), axis=-1)
    return jnp.where(possible, jnp.maximum(shares, SMALLEST), 0.0)


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


def _square(factor: Any) -> Any:
    return factor @ factor.swapaxes(-1, -2)


# The numbers of each conjugate prior: mean and precision; degrees and scale; shape and rate; both concentrations.
NUMBERS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    dist.Normal: lambda prior: (prior.loc, prior.scale**-2.0),
    dist.MultivariateNormal: lambda prior: (prior.loc, _numbers(prior.loc).linalg.inv(_square(prior.scale_tril))),
    dist.InverseWishart: lambda prior: (prior.concentration, _square(prior.scale_tril)),
    dist.InverseGamma: lambda prior: (2.0 * prior.concentration, 2.0 * prior.rate),
    RootInverseGamma: lambda prior: (2.0 * prior.concentration, 2.0 * prior.rate),
    dist.Gamma: lambda prior: (prior.concentration, prior.rate),
    dist.Exponential: lambda prior: (1.0, prior.rate),
    dist.Beta: lambda prior: (prior.concentration1, prior.concentration0),
    dist.Dirichlet: lambda prior: (prior.concentration,),
}


def is_flat(parameter: Parameter) -> bool:
    """Whether the prior is no distribution."""
    return type(_bare(parameter)) is dist.ImproperUniform


def prior_numbers(
    parameter: Parameter, kinds: tuple[type, ...], flat: tuple[float, ...], shapes: tuple[tuple[int, ...], ...] = ()
) -> list[Any] | None:
    """What a prior that is flat or one of these kinds adds to sums, in these shapes (or the parameter's); else None."""
    prior, shapes = _bare(parameter), shapes or (parameter.shape,) * len(flat)
    if type(prior) not in (*kinds, dist.ImproperUniform):
        return None
    given = flat if is_flat(parameter) else NUMBERS[type(prior)](prior)
    return [
        _numbers(each).broadcast_to(_numbers(each).asarray(each, float), shape)
        for each, shape in zip(given, shapes, strict=True)
    ]


def _bare(parameter: Parameter) -> Any:
    """The prior of one value, without what only repeats it."""
    prior = parameter.prior
    while isinstance(prior, dist.ExpandedDistribution | dist.Independent):
        prior = prior.base_dist
    return prior


def _numbers(given: Any) -> Any:
    """NumPy, or JAX inside compiled code."""
    return jnp if isinstance(given, jax.Array) else np
