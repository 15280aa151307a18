"""Bernoulli emissions: vectors of zeros and ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.model.conjugate import Moments, OneParameter, Pair, beta_prior, columns, draw_dirichlet
from longhmm.model.emissions.family import Family, as_float
from longhmm.model.parameters import Params
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary, Sample, Suit


@EMISSIONS.register("bernoulli")
class Bernoulli(OneParameter, Family):
    """Each of D features is 1 with probability `probs`, (K,), or (K, D) if dim > 1, independently given the state.

    Default prior: uniform.
    """

    builder, support, regions = dist.BernoulliProbs, constraints.boolean, {"probs": constraints.unit_interval}
    conjugate_prior = staticmethod(beta_prior)

    def __init__(self, dim: int = 1, *, probs: Any = None) -> None:
        if type(probs) is dist.Uniform and np.all(probs.low == 0) and np.all(probs.high == 1):
            probs = dist.Beta(np.ones(probs.batch_shape), 1.0)  # the same distribution, under its conjugate name
        super().__init__(dim, probs=probs)

    def default_priors(self, summary: DataSummary) -> dict[str, Distribution]:
        return {"probs": dist.Beta(1.0, 1.0)}

    @classmethod
    def suits(cls, sample: Sample) -> Suit | None:
        ones = sample.whole and sample.known.min() >= 0 and sample.known.max() <= 1
        return Suit(3, "all values are 0 or 1") if ones else None

    def sufficient_statistics(self, y: jax.Array) -> jax.Array:
        return as_float(self.with_features(y))

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array]:
        probs = self.with_features(params["probs"])
        return jnp.log(probs) - jnp.log1p(-probs), jnp.sum(-jnp.log1p(-probs), -1)

    # -- beta probabilities ----------------------------------------------------------------------------------------

    def updated(self, prior: Pair, sums: Moments) -> Pair:
        ones = sums.first.reshape(prior.one.shape)
        return Pair(prior.one + ones, prior.two + sums.number.reshape(prior.one.shape) - ones)

    def expected(self, q: Pair, values: jax.Array, observed: jax.Array) -> jax.Array:
        log_one, log_zero = (columns(digamma(each) - digamma(q.one + q.two)) for each in q)
        ones = jnp.where(observed, values, 0).astype(q.one.dtype)
        return ones @ log_one.T + (observed.astype(q.one.dtype) - ones) @ log_zero.T

    def mean_of(self, q: Pair) -> Any:
        return q.one / (q.one + q.two)

    def draw_from(self, key: jax.Array, q: Pair) -> Any:
        return draw_dirichlet(key, jnp.stack(q, -1))[..., 0]
