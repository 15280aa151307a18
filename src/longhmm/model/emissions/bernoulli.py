"""Bernoulli emissions: vectors of zeros and ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model import conjugate
from longhmm.model.conjugate import Approximation, Conditional, Moments, PairPrior, columns
from longhmm.model.emissions.family import Family, as_float, sum_features
from longhmm.model.lowering import LinearLowering
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary, Sample, Suit


@EMISSIONS.register("bernoulli")
class Bernoulli(Family):
    """Each of D features is 1 with probability `probs`, (K,), or (K, D) if dim > 1, independently given the state.

    Default prior: uniform.
    """

    builder = dist.BernoulliProbs
    support = constraints.boolean

    def __init__(self, dim: int = 1, *, probs: Any = None) -> None:
        if type(probs) is dist.Uniform and np.all(probs.low == 0) and np.all(probs.high == 1):
            probs = dist.Beta(np.ones(probs.batch_shape), 1.0)  # the same distribution, under its conjugate name
        super().__init__(dim=dim, regions={"probs": constraints.unit_interval}, probs=probs)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"probs": dist.Beta(1.0, 1.0)}

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        return as_float(self.with_features(y))

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        probs = self.with_features(params["probs"])
        return jnp.log(probs) - jnp.log1p(-probs), sum_features(-jnp.log1p(-probs))

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        return jnp.zeros(self.with_features(y).shape[:-1])

    @classmethod
    def suits(cls, sample: Sample) -> Suit | None:
        ones = sample.whole and sample.known.min() >= 0 and sample.known.max() <= 1
        return Suit(3, "all values are 0 or 1") if ones else None

    @property
    def lowering(self) -> LinearLowering:
        return LinearLowering(self)

    def conditional(self, n_levels: int, *, partial_rows: bool) -> Conditional | None:
        probs = self.parameters(n_levels)["probs"]
        return conjugate.pair_conditional(probs, conjugate.beta_prior(probs), _draw_probability)

    def approximation(self, n_levels: int, centre: Any) -> Approximation | None:
        """Beta probabilities."""
        probs = self.parameters(n_levels)["probs"]
        prior, shape = conjugate.beta_prior(probs), probs.shape
        if prior is None:
            return None

        def update(q: PairPrior, sums: Moments) -> PairPrior:
            ones, number = sums.first.reshape(shape), sums.number.reshape(shape)
            return PairPrior(prior.one + ones, prior.two + number - ones)

        def expected(q: PairPrior, values: jax.Array, observed: jax.Array) -> jax.Array:
            total = digamma(q.one + q.two)
            log_one, log_zero = (columns(probs, digamma(each) - total) for each in (q.one, q.two))
            ones = jnp.where(observed, values, 0).astype(q.one.dtype)
            return ones @ log_one.T + (observed.astype(q.one.dtype) - ones) @ log_zero.T

        return Approximation(
            conjugate.first_moments,
            lambda params, count: conjugate.pair_sums(probs, params, count),
            update,
            PairPrior(jnp.asarray(prior.one), jnp.asarray(prior.two)),
            expected,
            lambda q: {"probs": q.one / (q.one + q.two)},
            lambda key, q: {"probs": conjugate.draw_dirichlet(key, jnp.stack(q, -1))[..., 0]},
        )


def _draw_probability(key: jax.Array, prior: PairPrior, count: jax.Array, ones: jax.Array) -> jax.Array:
    return conjugate.draw_dirichlet(key, jnp.stack([prior.one + ones, prior.two + count - ones], -1))[..., 0]
