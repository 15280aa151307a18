"""Hidden Markov models whose posterior is known exactly, and long compiled chains on them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import longhmm as lh
from longhmm.samplers.contract import Kernel


class Target(NamedTuple):
    """A model, its data, and a point to start from."""

    model: lh.HMM
    data: lh.Sequences
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


def prepare(sampler: Any, target: Target, windows: lh.Windows, buffer: int) -> tuple[Kernel, Any]:
    estimator = sampler.estimator(windows, lh.FixedBuffer(buffer)).bind(target.model, target.data, target.params)
    kernel = sampler.build(target.model, estimator)
    return kernel, kernel.init(jax.random.key(11), coordinates_of(target.model, target.params))


def run(kernel: Kernel, state: Any, steps: int, keep: Callable[[Any], Any], seed: int = 0, chains: int = 4) -> np.ndarray:
    """`(chain, step, ...)`: `keep(state)` after every step, the first tenth left out."""

    def one(state: Any, key: jax.Array) -> tuple[Any, Any]:
        draw_key, step_key = jax.random.split(key)
        state, info = kernel.step(step_key, state, kernel.draw(draw_key))
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
    return Moments(mean, sd, means.std(axis=0, ddof=1) / root, squares.std(axis=0, ddof=1) / root / (2 * sd))


# Dirichlet: all states known ------------------------------------------------------------------------------------------

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
