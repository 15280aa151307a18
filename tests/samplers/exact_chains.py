"""Chains of full-data samplers, run compiled in double precision, and the Geweke test of a sweep."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import longhmm as lh
from samplers.targets import Moments, Prepared, moments


@partial(jax.jit, static_argnames=("draws",))
def _scan(sampler: Any, draws: int, target: Any, state: Any, key: jax.Array) -> Any:
    def one(state: Any, key: jax.Array) -> tuple[Any, Any]:
        state, info = sampler.step(target, key, state, target.minibatch(key))
        return state, (target.model.constrain(state.coordinates), info)

    return jax.lax.scan(one, state, jax.random.split(key, draws))[1]


def run(
    sampler: Any, model: lh.HMM, data: Any, params: dict[str, Any], draws: int, *, chains: int = 2, seed: int = 0
) -> tuple[dict[str, np.ndarray], Any]:
    """Natural parameters `(chain, draw, ...)` after a tenth of the draws, and the infos of the last chain."""
    sequences = lh.open_data(data)
    model = model.resolve(sequences)
    target = sampler.estimator(None, None).bind(model, sequences, params)
    start = lh.unconstrain(model, params)
    found = []
    with jax.enable_x64(True):
        at = {name: jnp.asarray(value) for name, value in start.items()}
        for chain in range(chains):
            init_key, run_key = jax.random.split(jax.random.key(1000 * seed + chain))
            state = Prepared(sampler, target).start(init_key, at)
            kept, info = _scan(sampler, draws, target, state, run_key)
            info = jax.tree.map(np.asarray, info)
            assert info.finite.all()
            found.append(jax.tree.map(np.asarray, kept))
    return jax.tree.map(lambda *parts: np.stack(parts)[:, draws // 10 :], *found), info


def assert_same_law(one: np.ndarray, other: np.ndarray, *, sd_share: float = 0.1, sigmas: float = 4.0) -> None:
    """Means of `(chain, draw, ...)` within some Monte Carlo errors, standard deviations within a share."""
    a, b = moments(one), moments(other)
    np.testing.assert_array_less(np.abs(a.mean - b.mean), sigmas * np.hypot(a.mean_error, b.mean_error) + 1e-12)
    np.testing.assert_array_less(np.abs(a.sd - b.sd), sd_share * b.sd + 3 * np.hypot(a.sd_error, b.sd_error))


def assert_moments(draws: np.ndarray, mean: Any, sd: Any, *, sigmas: float = 4.0) -> None:
    """Mean and standard deviation of `(chain, draw, ...)` within some Monte Carlo errors of known ones."""
    found: Moments = moments(draws)
    np.testing.assert_array_less(np.abs(found.mean - mean), sigmas * found.mean_error)
    np.testing.assert_array_less(np.abs(found.sd - sd), sigmas * found.sd_error)


def joint_chain(
    sampler: Any, model: lh.HMM, prior: Callable[[jax.Array], dict[str, Any]], length: int, steps: int, seed: int
) -> dict[str, np.ndarray]:
    """Geweke's successive-conditional simulator: data given parameters, a step given the data, and so on.

    The marginal law of the parameters is then the prior. Returns them, `(chain, step, ...)`.
    """
    params = jax.tree.map(np.asarray, prior(jax.random.key(seed)))
    _, y = lh.simulate(model, params, length, seed=seed)
    target = sampler.estimator(None, None).bind(model, lh.open_data(y), params)

    def simulated(key: jax.Array, params: dict[str, jax.Array]) -> jax.Array:
        path_key, emission_key = jax.random.split(key)
        logs = jnp.log(params["transition"])

        def walk(state: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jax.random.categorical(key, logs[state]), state

        first_key, walk_key = jax.random.split(path_key)
        first = jax.random.categorical(first_key, jnp.log(params["initial"]))
        states = jax.lax.scan(walk, first, jax.random.split(walk_key, length))[1]
        return model.emission.sample(emission_key, params, states)

    def with_data(target: Any, y: jax.Array) -> Any:
        data = target.data
        values = y.reshape(data.rows.values.shape).astype(data.rows.values.dtype)
        numbers = None
        if data.numbers is not None:
            lowering = model.emission.lowering
            numbers = jnp.asarray(lowering.numbers(values), data.numbers.dtype).reshape(data.numbers.shape)
        base = jnp.zeros_like(data.log_base_measure)  # which no parameter moves
        data = data._replace(rows=data.rows._replace(values=values), numbers=numbers, log_base_measure=base)
        return replace(target, data=data)

    @jax.jit
    def chain(target: Any, state: Any, key: jax.Array) -> Any:
        def one(state: Any, key: jax.Array) -> tuple[Any, Any]:
            data_key, step_key = jax.random.split(key)
            y = simulated(data_key, model.constrain(state.coordinates))
            state, _ = sampler.step(with_data(target, y), step_key, state, None)
            return state, model.constrain(state.coordinates)

        return jax.lax.scan(one, state, jax.random.split(key, steps))[1]

    found = []
    with jax.enable_x64(True):
        for index in range(2):
            key = jax.random.key(100 * seed + index)
            start = {name: jnp.asarray(value) for name, value in lh.unconstrain(model, params).items()}
            state = Prepared(sampler, target).start(key, start)
            found.append(jax.tree.map(np.asarray, chain(target, state, key)))
    return jax.tree.map(lambda *parts: np.stack(parts)[:, steps // 10 :], *found)
