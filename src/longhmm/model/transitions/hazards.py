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
SHORTEST = 1e-6  # mean rows beyond the first: what rounding leaves of them


class Steps(NamedTuple):
    """Logarithms `(S, D)` of what may happen in a phase; of what cannot, 0 counts for nothing (see `Durations`)."""

    stay: jax.Array  # in it
    onward: jax.Array  # to the next phase
    leave: jax.Array  # the state


def running_sum(values: jax.Array) -> jax.Array:
    """Along the last axis of `(S, n)`, as a product with a matrix, which is quickly compiled; by blocks, so that both
    are small."""
    n = values.shape[-1]
    size = max(1, round(n**0.5))
    blocks = jnp.pad(values, ((0, 0), (0, -n % size))).reshape(len(values), -1, size)
    within = jnp.matmul(blocks, np.triu(np.ones((size, size), values.dtype)), precision="highest")
    before = np.tril(np.ones((blocks.shape[1],) * 2, values.dtype), -1)
    found = within + jnp.matmul(before, within[..., -1:], precision="highest")
    return found.reshape(len(values), -1)[:, :n]


def by_age(logs: jax.Array, beyond: jax.Array, phases: int) -> Steps:
    """Phases that count rows, from `log P(T = d)`, `(S, n)`, d = 1 .. n, and `log P(T > n)`, `(S,)`. The last phase
    repeats itself. Survival is added up from its end and on logarithms, where nothing is lost, nor in derivatives."""
    # Each in a sum of its own, of D terms: a scan takes many times as long to compile, and with it every program.
    tail = logsumexp(jnp.concatenate([logs[:, phases:], beyond[:, None]], axis=1), axis=1, keepdims=True)
    terms = jnp.concatenate([logs[:, :phases], tail], axis=1)
    later = np.triu(np.ones((phases + 1, phases + 1), bool))
    survival = logsumexp(jnp.broadcast_to(terms[:, None, :], (len(terms), *later.shape)), axis=2, where=later)
    onward = survival[:, 1:] - survival[:, :-1]
    last = np.arange(phases) == phases - 1
    return Steps(jnp.where(last, onward, 0.0), jnp.where(last, 0.0, onward), logs[:, :phases] - survival[:, :-1])


def negative_binomial(mean: jax.Array, shape: jax.Array, phases: int) -> Steps:
    """T - 1 is negative binomial with mean `mean - 1`; geometric with a shape of 1."""
    terms = jnp.arange(max(FURTHER * phases, LEAST), dtype=mean.dtype)
    mean, shape = (mean - 1.0)[:, None], shape[:, None]
    log_stay, log_leave = (jnp.log(each) - jnp.log(mean + shape) for each in (mean, shape))
    # Gamma(n + r) / (Gamma(r) n!), by its factors: derivatives of gamma functions take long to compile.
    factors = jnp.log(shape + terms[:-1]) - jnp.log(terms[1:])
    rising = jnp.concatenate([jnp.zeros_like(shape), running_sum(factors)], axis=1)
    logs = rising + shape * log_leave + terms * log_stay
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
    series = terms * jnp.log(rate) - running_sum(jnp.log(shape + terms))
    first = shape * jnp.log(rate) - gammaln(shape) - rate + logsumexp(series, axis=1, keepdims=True)
    logs = jnp.concatenate([first, later], axis=1)
    return by_age(logs, _beyond(logs, logs[:, -1] - logs[:, -2]), phases)


def free(hazards: jax.Array) -> Steps:
    """A hazard `(S, D)` for every phase."""
    last, onward = np.arange(hazards.shape[1]) == hazards.shape[1] - 1, jnp.log1p(-hazards)
    return Steps(jnp.where(last, onward, 0.0), jnp.where(last, 0.0, onward), jnp.log(hazards))


def phase_type(times: jax.Array, ends: jax.Array) -> Steps:
    """Phases `(S, D)` of geometric times with these means, after which, but for the last, a visit ends with chances
    `(S, D - 1)`: a Coxian distribution."""
    away, none = -jnp.log(times), jnp.zeros_like(times[:, :1])
    stay = jnp.log(jnp.maximum(times - 1.0, SHORTEST)) + away
    onward = jnp.concatenate([away[:, :-1] + jnp.log1p(-ends), none], axis=1)
    return Steps(stay, onward, away + jnp.concatenate([jnp.log(ends), none], axis=1))


def _beyond(logs: jax.Array, log_ratio: jax.Array) -> jax.Array:
    """What lies beyond the last term is nearly geometric."""
    log_ratio = jnp.minimum(log_ratio, FLATTEST)
    return logs[:, -1] + log_ratio - jnp.log(-jnp.expm1(log_ratio))
