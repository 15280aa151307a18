"""Poisson emissions: counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.conjugate import Moments, OneParameter, Pair, columns, gamma_prior
from longhmm.model.emissions.family import Family, as_float
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary, Sample, Suit

LARGE_COUNTS = 1000  # beyond, counts are as good as real numbers


@EMISSIONS.register("poisson")
class Poisson(OneParameter, Family):
    """y | x = k is Poisson with `rate` (K,), or (K, D) for D independent counts.

    Default prior: exponential (gamma with shape 1, which is conjugate) with half the largest count as mean.
    """

    builder, support, regions = dist.Poisson, constraints.nonnegative_integer, {"rate": constraints.positive}
    conjugate_prior = staticmethod(gamma_prior)

    def __init__(self, dim: int = 1, *, rate: Any = None) -> None:
        super().__init__(dim, rate=rate)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"rate": dist.Gamma(1.0, self.per_feature(1.0 / summary.typical_rate))}

    @classmethod
    def suits(cls, sample: Sample) -> Suit | None:
        if not sample.whole or sample.known.min() < 0 or sample.varies_less_than_counts:
            return None
        if sample.known.mean() > LARGE_COUNTS:
            return None
        return Suit(1, "the values are counts; if they are labels, give --emission categorical")

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        return as_float(self.with_features(y))

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        rate = self.with_features(params["rate"])
        return jnp.log(rate), jnp.sum(rate, -1)

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.sum(-gammaln(as_float(self.with_features(y)) + 1.0), -1)

    # -- gamma rates -----------------------------------------------------------------------------------------------

    def updated(self, prior: Pair, sums: Moments) -> Pair:
        shape = prior.one.shape
        return Pair(prior.one + sums.first.reshape(shape), prior.two + sums.number.reshape(shape))

    def expected(self, q: Pair, values: jax.Array, observed: jax.Array) -> jax.Array:
        seen = jnp.where(observed, values, 0).astype(q.one.dtype)
        log_mean, mean = columns(digamma(q.one) - jnp.log(q.two)), columns(q.one / q.two)
        ways = jnp.sum(jnp.where(observed, gammaln(seen + 1.0), 0.0), axis=1, keepdims=True)
        return seen @ log_mean.T - observed.astype(q.one.dtype) @ mean.T - ways

    def mean_of(self, q: Pair) -> Any:
        return q.one / q.two

    def draw_from(self, key: jax.Array, q: Pair) -> Any:
        return jnp.exp(jax.random.loggamma(key, q.one)) / q.two
