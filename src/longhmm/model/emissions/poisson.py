"""Poisson emissions: counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model import conjugate
from longhmm.model.conjugate import Approximation, Conditional, PairPrior, columns
from longhmm.model.emissions.family import Family, as_float, sum_features
from longhmm.model.lowering import LinearLowering
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary, Sample, Suit

LARGE_COUNTS = 1000  # beyond, counts are as good as real numbers


@EMISSIONS.register("poisson")
class Poisson(Family):
    """y | x = k is Poisson with `rate` (K,), or (K, D) for D independent counts.

    Default prior: exponential (gamma with shape 1, which is conjugate) with half the largest count as mean.
    """

    builder = dist.Poisson
    support = constraints.nonnegative_integer

    def __init__(self, dim: int = 1, *, rate: Any = None) -> None:
        super().__init__(dim=dim, regions={"rate": constraints.positive}, rate=rate)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"rate": dist.Gamma(1.0, self.per_feature(1.0 / summary.typical_rate))}

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        return as_float(self.with_features(y))

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        rate = self.with_features(params["rate"])
        return jnp.log(rate), sum_features(rate)

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return sum_features(-gammaln(as_float(self.with_features(y)) + 1.0))

    @classmethod
    def suits(cls, sample: Sample) -> Suit | None:
        if not sample.whole or sample.known.min() < 0 or sample.varies_less_than_counts:
            return None
        if sample.known.mean() > LARGE_COUNTS:
            return None
        return Suit(1, "the values are counts; if they are labels, give --emission categorical")

    @property
    def lowering(self) -> LinearLowering:
        return LinearLowering(self)

    def conditional(self, n_levels: int, *, partial_rows: bool) -> Conditional | None:
        rate = self.parameters(n_levels)["rate"]
        return conjugate.pair_conditional(rate, conjugate.gamma_prior(rate), _draw_rate)

    def approximation(self, n_levels: int, centre: Any) -> Approximation | None:
        """Gamma rates."""
        rate = self.parameters(n_levels)["rate"]
        prior, shape = conjugate.gamma_prior(rate), rate.shape
        if prior is None:
            return None

        def expected(q: PairPrior, values: jax.Array, observed: jax.Array) -> jax.Array:
            seen = jnp.where(observed, values, 0).astype(q.one.dtype)
            log_mean, mean = (columns(rate, each) for each in (digamma(q.one) - jnp.log(q.two), q.one / q.two))
            ways = jnp.sum(jnp.where(observed, gammaln(seen + 1.0), 0.0), axis=1, keepdims=True)
            return seen @ log_mean.T - observed.astype(q.one.dtype) @ mean.T - ways

        return Approximation(
            conjugate.first_moments,
            lambda params, count: conjugate.pair_sums(rate, params, count),
            lambda q, sums: PairPrior(prior.one + sums.first.reshape(shape), prior.two + sums.number.reshape(shape)),
            PairPrior(jnp.asarray(prior.one), jnp.asarray(prior.two)),
            expected,
            lambda q: {"rate": q.one / q.two},
            lambda key, q: {"rate": jax.random.gamma(key, q.one) / q.two},
        )


def _draw_rate(key: jax.Array, prior: PairPrior, count: jax.Array, total: jax.Array) -> jax.Array:
    return jnp.divide(jnp.exp(jax.random.loggamma(key, prior.one + total)), prior.two + count)
