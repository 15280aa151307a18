"""Independent answers for the tests of gradients: plain NumPy and SciPy, finite differences, small models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.special import logsumexp

from longhmm import Emission
from longhmm.data.sequences import Sequences, open_data
from longhmm.model.hmm import HMM

Array = np.ndarray


def normal_model(n_states: int, **options: Any) -> HMM:
    """Normal emissions with mean `loc` and a known deviation of 1: the cheapest model there is to compile."""
    return HMM(n_states, Emission(dist.Normal, loc=dist.Normal(0.0, 3.0), scale=1.0), **options)


def normal_logs(loc: Array, y: Array) -> Array:
    """`log p(y_t | k)`, `(T, K)`, of that emission; 0 where y is missing."""
    logs = stats.norm.logpdf(np.asarray(y, float).reshape(-1, 1), np.asarray(loc))
    return np.where(np.isnan(logs), 0.0, logs)


def forward_log_likelihood(initial: Array, transition: Array, logs: Array, lengths: list[int]) -> float:
    """Log likelihood of many sequences laid end to end, by the textbook recursion on logarithms."""
    with np.errstate(divide="ignore"):
        log_initial, log_transition = np.log(initial), np.log(transition)
    total, position = 0.0, 0
    for length in lengths:
        message = log_initial + logs[position]
        for t in range(position + 1, position + length):
            message = logsumexp(message[:, None] + log_transition, axis=0) + logs[t]
        total += float(logsumexp(message))
        position += length
    return total


def differences(function: Callable[[Array], float], at: Array, step: float = 1e-3) -> Array:
    """Gradient of a scalar function by central differences of order six: errors of about 1e-10 for smooth functions."""
    weights = {1: 45 / 60, 2: -9 / 60, 3: 1 / 60}
    slopes = np.zeros(len(at))
    for index in range(len(at)):
        shift = np.zeros(len(at))
        shift[index] = step
        slopes[index] = sum(
            weight * (function(at + k * shift) - function(at - k * shift)) / step for k, weight in weights.items()
        )
    return slopes


def flat(tree: Mapping[str, Any]) -> Array:
    """All numbers of a gradient, in the order of the sorted names."""
    return np.concatenate([np.ravel(np.asarray(tree[name], np.float64)) for name in sorted(tree)])


class Coordinates:
    """A model's unconstrained space as vectors: `to_natural(vector)`, `log_prior(vector)`, compiled once each."""

    def __init__(self, model: HMM, params: Mapping[str, Any]) -> None:
        with jax.enable_x64(True):
            complete = {name: jnp.asarray(value) for name, value in model.validate(params).items()}
            vector, unravel = ravel_pytree(model.unconstrain(complete))
        self.vector = np.asarray(vector)
        self._natural = jax.jit(lambda point: model.constrain(unravel(point)))
        self._prior = jax.jit(lambda point: model.log_prior_unconstrained(unravel(point)))

    def to_natural(self, vector: Array) -> dict[str, Array]:
        with jax.enable_x64(True):
            return {name: np.asarray(value) for name, value in self._natural(jnp.asarray(vector)).items()}

    def log_prior(self, vector: Array) -> float:
        with jax.enable_x64(True):
            return float(self._prior(jnp.asarray(vector)))


def simulate_normal(transition: Array, loc: Array, length: int, seed: int) -> Array:
    """Observations `(length,)` of a stationary chain, drawn stay by stay, without the package's own simulator."""
    rng = np.random.default_rng(seed)
    n_states = len(transition)
    jumps = transition * (1 - np.eye(n_states))
    jumps /= jumps.sum(axis=1, keepdims=True)
    state = int(rng.choice(n_states, p=stationary_law(transition)))
    stays, visited, total = [], [], 0
    while total < length:  # a geometric stay has no memory, so that the first one needs no special care
        stays.append(int(rng.geometric(1 - transition[state, state])))
        visited.append(state)
        total += stays[-1]
        state = int(rng.choice(n_states, p=jumps[state]))
    states = np.repeat(visited, stays)[:length]
    return rng.normal(np.asarray(loc)[states])


def stationary_law(transition: Array) -> Array:
    """The law that the transitions leave alone, from the eigenvector of eigenvalue 1."""
    values, vectors = np.linalg.eig(np.asarray(transition).T)
    law = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return law / law.sum()


def batch_means(samples: Array, batches: int = 200) -> tuple[Array, Array]:
    """Mean over the first axis and its standard error, for samples that depend on their neighbours."""
    length = len(samples) // batches
    means = samples[: length * batches].reshape(batches, length, -1).mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(batches)


# Two states whose emissions overlap, seen from parameters away from the truth: typical and mean errors differ visibly.
OVERLAPPING = normal_model(2, initial="stationary")
AWAY = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "loc": np.array([-0.4, 0.7])}


@cache
def overlapping_data() -> Sequences:
    """A hundred thousand observations of a chain with long stays."""
    return open_data(simulate_normal(np.array([[0.97, 0.03], [0.06, 0.94]]), np.array([-1.0, 1.0]), 100_000, seed=3))
