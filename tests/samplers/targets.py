"""Hidden Markov models whose posterior is known exactly, and long compiled chains on them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import longhmm as lh
from longhmm.data.sequences import Sequences
from longhmm.samplers.control_variate_sgld import Tuned
from longhmm.target.control_variate import CountControl


class Target(NamedTuple):
    """A model, its data, and a point to start from."""

    model: lh.HMM
    data: Sequences
    params: dict[str, Any]


class Moments(NamedTuple):
    """Mean and standard deviation of a chain, with the Monte Carlo standard errors of both."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray


def coordinates_of(model: lh.HMM, params: dict[str, Any]) -> dict[str, jax.Array]:
    found = lh.unconstrain(model, params)
    return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()}


class Prepared(NamedTuple):
    """A sampler, what it sees of the data, and the two as pure functions."""

    sampler: Any
    target: Any

    def init(self, key: jax.Array, u: Any) -> Any:
        return self.sampler.init(self.target, key, u)

    def step(self, key: jax.Array, state: Any, minibatch: Any) -> tuple[Any, Any]:
        """Compiled where it may be."""
        step = _step if self.target.compiled else _step.__wrapped__
        return step(self.sampler, self.target, key, state, minibatch)

    def start(self, key: jax.Array, u: Any) -> Any:
        """The first state, and all of its adaptation."""
        state = self.init(key, u)
        for adapted, _ in self.sampler.adapt(self.target, key, state):
            state = adapted
        return state


def tuned_by_hand(at: dict[str, Any], scale: float) -> lh.samplers.ControlVariateSGLD:
    """The default sampler with a given scale of all coordinates, and h = 0.1."""
    size = sum(np.size(value) for value in at.values())
    one = np.eye(size, dtype=np.float32)
    point = {name: np.asarray(value) for name, value in at.items()}
    counts = CountControl(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32))
    numbers = (0.0, 0, np.nan, np.float32(scale) * one, one, 0.1, 0.0, 0.0)
    tuned = Tuned(point, one, *numbers, point, point, counts, 0, lh.Windows(), 0)
    return lh.samplers.ControlVariateSGLD(tuned=tuned)


@jax.jit
def _step(sampler: Any, target: Any, key: jax.Array, state: Any, minibatch: Any) -> tuple[Any, Any]:
    return sampler.step(target, key, state, minibatch)


def prepare(sampler: Any, target: Target, windows: lh.Windows, buffer: int) -> tuple[Prepared, Any]:
    bound = sampler.estimator(windows, lh.FixedBuffer(buffer)).bind(target.model, target.data, target.params)
    ready = Prepared(sampler, bound)
    return ready, ready.init(jax.random.key(11), coordinates_of(target.model, target.params))


def run(
    ready: Prepared, state: Any, steps: int, keep: Callable[[Any], Any], seed: int = 0, chains: int = 4
) -> np.ndarray:
    """`(chain, step, ...)`: `keep(state)` after every step, the first tenth left out."""

    def one(state: Any, key: jax.Array) -> tuple[Any, Any]:
        draw_key, step_key = jax.random.split(key)
        state, info = ready.step(step_key, state, ready.target.minibatch(draw_key))
        return state, (keep(state), info.finite)

    @jax.jit
    def chain(key: jax.Array) -> tuple[Any, Any]:
        return jax.lax.scan(one, state, jax.random.split(key, steps))[1]

    kept, finite = jax.vmap(chain)(jax.random.split(jax.random.key(seed), chains))
    assert bool(jnp.all(finite))
    return np.asarray(kept, np.float64)[:, steps // 10 :]


def moments(draws: np.ndarray) -> Moments:
    """Mean and sd over `(chain, step, ...)`, with errors from the spread over 10 stretches of each chain."""
    mean = draws.mean(axis=(0, 1))
    stretches = np.array_split(draws, 10, axis=1)
    means = np.concatenate([part.mean(axis=1) for part in stretches])
    squares = np.concatenate([((part - mean) ** 2).mean(axis=1) for part in stretches])
    variance = squares.mean(axis=0)
    root = np.sqrt(len(means))
    sd = np.sqrt(variance)
    spread = squares.std(axis=0, ddof=1) / root
    return Moments(mean, sd, means.std(axis=0, ddof=1) / root, spread / (2 * np.where(sd > 0, sd, 1.0)))


# Dirichlet: all states known --------------------------------------------------------------------------------------

CONCENTRATION = np.array([[1.0, 2.0, 0.5], [1.0, 1.0, 1.0], [3.0, 0.0, 1.0]])


def known_states(length: int = 2000) -> tuple[Target, np.ndarray]:
    """Row i of A is Dirichlet(posterior[i]): concentration plus counts. One cell is never visited, one forbidden."""
    rng = np.random.default_rng(3)
    law = np.array([[0.7, 0.3, 0.0], [0.1, 0.5, 0.4], [0.2, 0.0, 0.8]])
    states = np.zeros(length, int)
    for t in range(1, length):
        states[t] = rng.choice(3, p=law[states[t - 1]])
    counts = np.zeros((3, 3))
    np.add.at(counts, (states[:-1], states[1:]), 1)
    model = lh.HMM(3, lh.Poisson(rate=[1.0, 2.0, 3.0]), transition_prior=CONCENTRATION)
    start = np.array([[0.65, 0.3, 0.05], [0.15, 0.45, 0.4], [0.3, 0.0, 0.7]])
    data = lh.open_data(rng.poisson(2.0, length), states=states)
    return Target(model, data, {"transition": start}), CONCENTRATION + counts


def dirichlet_moments(concentration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of every entry, row by row."""
    total = concentration.sum(axis=1, keepdims=True)
    mean = concentration / total
    return mean, np.sqrt(mean * (1 - mean) / (total + 1))


def transitions_of(target: Target) -> Callable[[Any], jax.Array]:
    return lambda state: target.model.transitions.constrain(state.coordinates["transition"])


# One state: ordinary conjugate models -----------------------------------------------------------------------------


def normal_mean(length: int = 1000) -> tuple[Target, float, float]:
    """K = 1, known variance: the mean is normal; its posterior mean and sd."""
    variance, prior_mean, prior_sd = 1.5, 1.0, 2.0
    y = np.random.default_rng(5).normal(3.0, np.sqrt(variance), length).astype(np.float32)
    model = lh.HMM(1, lh.Gaussian(mean=dist.Normal(prior_mean, prior_sd), sd=np.sqrt(variance)))
    precision = length / variance + prior_sd**-2
    mean = (y.sum(dtype=np.float64) / variance + prior_mean / prior_sd**2) / precision
    return Target(model, lh.open_data(y), {"transition": [[1.0]], "mean": [2.9]}), mean, precision**-0.5


def known_mean(length: int = 40) -> tuple[Target, float, np.ndarray]:
    """K = 1, known mean, two features: the covariance is inverse Wishart; degrees of freedom and scale matrix."""
    degrees, scale = 5.0, np.array([[2.0, 0.3], [0.3, 1.0]])
    truth = np.array([[2.0, 0.8], [0.8, 1.0]])
    y = np.random.default_rng(7).multivariate_normal(np.zeros(2), truth, length).astype(np.float32)
    prior = dist.InverseWishart(degrees, scale_tril=np.linalg.cholesky(scale))
    model = lh.HMM(1, lh.Gaussian(dim=2, mean=[[0.0, 0.0]], covariance=prior))
    start = {"transition": [[1.0]], "covariance": truth[None]}
    wide = y.astype(np.float64)
    return Target(model, lh.open_data(y), start), degrees + length, scale + wide.T @ wide
