"""Where the time of a sampler's loop goes: each part alone or on top of the parts before it, compiled as in the driver.

Random numbers (keys and the noise of the update), positions of windows, gradient, update, and recording every step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.run.driver import Driver
from longhmm.target.coordinates import unconstrain

CHAINS, STEPS, ROUNDS = 4, 100, 15


def shares(model: Any, params: Any, data: Any, windows: lh.Windows, buffer: int) -> dict[str, float]:
    """Microseconds per step of one chain, four chains in one program; the parts add up to the total."""
    sequences = open_data(data)
    resolved = model.resolve(sequences)
    sampler = lh.SGRLD(0.01)
    bound = sampler.estimator(windows, lh.FixedBuffer(buffer)).bind(resolved, sequences, params)
    driver = Driver(sampler, bound, seed=0)
    run = driver.start([unconstrain(resolved, params)] * CHAINS)
    states = jax.tree.map(lambda *parts: jnp.stack(parts), *run.states)
    size = sum(value.size for value in run.states[0].coordinates.values())

    def keys(state: Any, target: Any, draw_key: Any, step_key: Any) -> Any:
        return jax.random.bits(draw_key) + jax.random.bits(step_key)

    def noise(state: Any, target: Any, draw_key: Any, step_key: Any) -> Any:
        return jnp.sum(jax.random.normal(step_key, (size,))) + jax.random.bits(draw_key)

    def positions(state: Any, target: Any, draw_key: Any, step_key: Any) -> Any:
        return jnp.sum(target.minibatch(draw_key).layout.begin) + jax.random.bits(step_key)

    def gradient(state: Any, target: Any, draw_key: Any, step_key: Any) -> Any:
        found = target.estimate(state.coordinates, target.minibatch(draw_key))
        return sum(jnp.sum(each) for each in found.gradient.values()) + jax.random.bits(step_key)

    def step(state: Any, target: Any, draw_key: Any, step_key: Any) -> Any:
        return sampler.step(target, step_key, state, target.minibatch(draw_key))[0]

    loops = {work.__name__: _loop(work) for work in (keys, noise, positions, gradient, step)}
    chain_keys = jnp.stack([driver.chain_key(chain) for chain in range(CHAINS)])
    cost = dict.fromkeys([*loops, "recorded"], np.inf)
    # Taking turns: what else the machine does falls on all parts alike.
    for _ in range(ROUNDS):
        for name, loop in loops.items():
            cost[name] = min(cost[name], _seconds(lambda loop=loop: loop(bound, states, chain_keys)))
        cost["recorded"] = min(cost["recorded"], _seconds(lambda: driver.advance(run, STEPS, 1)))
    micro = {name: each / STEPS / CHAINS * 1e6 for name, each in cost.items()}
    drawn = micro["noise"] - micro["keys"]
    return {
        "random numbers": micro["noise"],
        "positions": micro["positions"] - micro["keys"],
        "gradient": micro["gradient"] - micro["positions"],
        "update": micro["step"] - micro["gradient"] - drawn,
        "recording": micro["recorded"] - micro["step"],
        "total": micro["recorded"],
    }


def _loop(work: Callable[..., Any]) -> Callable[..., Any]:
    """`STEPS` steps of all chains; the work returns the next state, or a number that depends on all it did."""

    @jax.jit
    def run(bound: Any, states: Any, keys: jax.Array) -> Any:
        def chain(state: Any, key: jax.Array) -> Any:
            def one(number: jax.Array, carry: Any) -> Any:
                state, total = carry
                draw_key, step_key = jax.random.split(jax.random.fold_in(key, number))
                # Added to the state, so that nothing is the same in every turn and taken out of the loop.
                moved = {name: value + 0.0 * total for name, value in state.coordinates.items()}
                found = work(state._replace(coordinates=moved), bound, draw_key, step_key)
                if isinstance(found, type(state)):
                    return found, total
                return state, total + jnp.asarray(found).astype(jnp.float32)

            return jax.lax.fori_loop(0, STEPS, one, (state, jnp.zeros((), jnp.float32)))

        return jax.vmap(chain)(states, keys)

    return run


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(jax.tree.leaves(work()) or 0)
    return time.perf_counter() - began
