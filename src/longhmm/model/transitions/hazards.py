"""Distributions of dwell times T = 1, 2, ..., as the chance to leave in every phase: the hazard `P(T = d | T >= d)`."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp

FURTHER, LEAST = 8, 256  # times as many terms as phases are added up in the tail of a distribution, or so many
FLATTEST = -1e-6  # logarithm of the ratio of two terms in the tail, at most: what rounding leaves of it
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)  # of integrals over one row
TERMS = 80  # of the series of an integral from 0


class Steps(NamedTuple):
    """Logarithms `(S, D)` of what may happen in a phase; of what cannot, 0 counts for nothing (see `Durations`)."""

    stay: jax.Array  # in it
    onward: jax.Array  # to the next phase
    leave: jax.Array  # the state


def by_age(logs: jax.Array, beyond: jax.Array, phases: int) -> Steps:
    """Phases that count rows, from `log P(T = d)`, `(S, n)`, d = 1 .. n, and `log P(T > n)`, `(S,)`. The last phase
    repeats itself. Survival is added up from its end and on logarithms, where nothing is lost, nor in derivatives."""
    survival = jax.lax.cumlogsumexp(jnp.concatenate([logs, beyond[:, None]], axis=1), axis=1, reverse=True)
    onward = survival[:, 1 : phases + 1] - survival[:, :phases]
    last = np.arange(phases) == phases - 1
    return Steps(jnp.where(last, onward, 0.0), jnp.where(last, 0.0, onward), (logs - survival[:, :-1])[:, :phases])


def negative_binomial(mean: jax.Array, shape: jax.Array, phases: int) -> Steps:
    """T - 1 is negative binomial with mean `mean - 1`; geometric with a shape of 1."""
    terms = jnp.arange(max(FURTHER * phases, LEAST), dtype=mean.dtype)
    mean, shape = (mean - 1.0)[:, None], shape[:, None]
    log_stay, log_leave = (jnp.log(each) - jnp.log(mean + shape) for each in (mean, shape))
    logs = gammaln(terms + shape) - gammaln(shape) - gammaln(terms + 1.0) + shape * log_leave + terms * log_stay
    ratio = jnp.log(terms[-1] + shape) - jnp.log(terms[-1] + 1.0) + log_stay
    return by_age(logs, _beyond(logs, ratio[:, 0]), phases)


def gamma(mean: jax.Array, shape: jax.Array, phases: int) -> Steps:
    """T is a gamma variable with this mean and shape, rounded up to whole rows; `mean` is larger than 1."""
    count = max(FURTHER * phases, LEAST)
    mean, shape = mean[:, None], shape[:, None]
    rate = shape / mean
    # Row d lasts from d - 1 to d: by Gauss and Legendre, but for the first, whose density may be infinite at 0.
    at = jnp.asarray(np.arange(1, count)[:, None] + 0.5 * (1.0 + NODES), mean.dtype).reshape(-1)
    density = shape * jnp.log(rate) - gammaln(shape) + (shape - 1.0) * jnp.log(at) - rate * at
    weights = jnp.log(jnp.asarray(0.5 * WEIGHTS, mean.dtype))
    later = logsumexp(density.reshape(-1, count - 1, len(NODES)) + weights, axis=2)
    # int_0^1 x^(a - 1) e^(-r x) dx = e^(-r) sum_n r^n / (a (a + 1) ... (a + n))
    terms = jnp.arange(TERMS, dtype=mean.dtype)
    series = terms * jnp.log(rate) - jnp.cumsum(jnp.log(shape + terms), axis=1)
    first = shape * jnp.log(rate) - gammaln(shape) - rate + logsumexp(series, axis=1, keepdims=True)
    logs = jnp.concatenate([first, later], axis=1)
    return by_age(logs, _beyond(logs, logs[:, -1] - logs[:, -2]), phases)


def free(hazards: jax.Array) -> Steps:
    """A hazard `(S, D)` for every phase."""
    last, onward = np.arange(hazards.shape[1]) == hazards.shape[1] - 1, jnp.log1p(-hazards)
    return Steps(jnp.where(last, onward, 0.0), jnp.where(last, 0.0, onward), jnp.log(hazards))


def _beyond(logs: jax.Array, log_ratio: jax.Array) -> jax.Array:
    """What lies beyond the last term is nearly geometric."""
    log_ratio = jnp.minimum(log_ratio, FLATTEST)
    return logs[:, -1] + log_ratio - jnp.log(-jnp.expm1(log_ratio))
