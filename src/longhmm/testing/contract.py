"""Whether a sampler keeps its contract: inspected, tuned, and stepped on a small model."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import LongHMMError
from longhmm.model.emissions.poisson import Poisson
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.samplers.contract import Sampler, Start
from longhmm.target.buffer_length import FixedBuffer
from longhmm.target.coordinates import unconstrain
from longhmm.target.systematic import Windows
from longhmm.target.target import StreamedPosterior
from longhmm.testing.identities import close, require

PARAMS = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
WINDOWS, BUFFER = Windows(half_width=3, count=4), FixedBuffer(3)
STEPS = 3


def check_sampler(sampler: Sampler, *, chance: bool = True) -> None:
    """Raise an `AssertionError` that says which part of the contract a sampler does not keep.

    Args:
        sampler: with settings that suit 300 counts of two states.
        chance: False for samplers that draw no random numbers of their own.

    Example:
        >>> import longhmm as lh
        >>> lh.testing.check_sampler(lh.SGLD(step_size=1e-4))
    """
    given: Any = sampler
    require(isinstance(given, Sampler), "a sampler is derived from Sampler")
    frozen = is_dataclass(given) and vars(type(given))["__dataclass_params__"].frozen
    require(frozen and isinstance(hash(given), int), "a sampler is a frozen dataclass that can be hashed")
    require(isinstance(getattr(given, "name", None), str), "a sampler has a name")
    model = HMM(2, Poisson())
    data = open_data(simulate(model, PARAMS, 300, seed=0)[1])
    model = model.resolve(data)
    tuned = sampler.tune(StreamedPosterior(model, data), Start(PARAMS, WINDOWS, BUFFER))
    require(isinstance(tuned, type(sampler)), "tune returns a sampler of the same class")
    target, start = tuned.estimator(WINDOWS, BUFFER).bind(model, data, PARAMS), unconstrain(model, PARAMS)
    with jax.enable_x64(sampler.x64):
        _Tried(tuned, target, start).check(chance)


class _Tried:
    """A tuned sampler on a small model, in the precision it runs in."""

    def __init__(self, sampler: Sampler, target: Any, start: Mapping[str, np.ndarray]) -> None:
        self.sampler, self.target = sampler, target
        kind = np.float64 if sampler.x64 else np.float32
        self.u = {name: jnp.asarray(each, kind) for name, each in start.items()}
        self.state = sampler.init(target, jax.random.key(0), self.u)
        self.minibatch = target.minibatch(jax.random.key(2))

    def step(self, seed: int, state: Any = None) -> tuple[Any, Any]:
        step = jax.jit(_step) if self.target.compiled else _step
        given = self.state if state is None else state
        return step(self.sampler, self.target, jax.random.key(seed), given, self.minibatch)

    def check(self, chance: bool) -> None:
        after, info = self.step(1)
        self.check_forms(after, info)
        close(_flat(self.step(1)[0]), _flat(after), "a step depends on its key alone")
        other = self.step(3)[0].coordinates
        moved = any(not np.array_equal(other[name], after.coordinates[name]) for name in self.u)
        require(moved == chance, "steps with different keys differ where there is chance, and only there")
        if any(np.any(np.asarray(each)) for each in info.gradient.values()):
            for name, value in self.target.estimate(self.state.coordinates, self.minibatch).gradient.items():
                found, wide = (np.asarray(each, np.float64) for each in (info.gradient[name], value))
                gap = np.abs(found - wide).max() / (1.0 + np.abs(wide).max())
                require(bool(gap < 1e-4), "Info.gradient is that of the state before")
        self.check_not_a_number()
        if self.target.compiled:
            self.check_compiled()
        record = jax.tree.map(lambda each: np.asarray(each)[None, None], self.sampler.record(after))
        coordinates = self.sampler.coordinates(record)
        for name, value in after.coordinates.items():
            near = np.allclose(coordinates[name][0, 0], value, rtol=1e-4, atol=1e-4)
            require(near, "coordinates(record(state)) are those of the state")

    def check_forms(self, after: Any, info: Any) -> None:
        state = self.state
        require(hasattr(state, "_fields") and hasattr(info, "_fields"), "State and Info are NamedTuples")
        require(type(after) is type(state), "a step returns a state of the same class")
        require(bool(info.finite), "a step from a sound state is finite")
        require(set(info.gradient) == set(state.coordinates) == set(self.u), "coordinates and gradient have all names")
        shapes = [jax.tree.map(lambda each: (np.shape(each), np.asarray(each).dtype), one) for one in (state, after)]
        require(shapes[0] == shapes[1], "shapes and types of a state do not change")
        for name, value in self.u.items():
            there = after.coordinates[name]
            require(np.shape(there) == value.shape and there.dtype == value.dtype, "coordinates keep shape and type")
            require(not np.array_equal(there, value), "a step moves every coordinate")

    def check_not_a_number(self) -> None:
        def broken(leaf: Any) -> Any:
            return np.full_like(leaf, np.nan) if np.issubdtype(np.asarray(leaf).dtype, np.floating) else leaf

        try:
            _, info = self.step(1, jax.tree.map(broken, self.state))
        except LongHMMError:
            require(not self.target.compiled, "compiled steps raise nothing")
        else:
            require(not bool(info.finite), "Info.finite is False where a number is not finite")

    def check_compiled(self) -> None:
        """As the driver runs it: many steps in one program, sampler and target its arguments."""
        keys, one_by_one = jax.random.split(jax.random.key(5), STEPS), self.state
        together = _scanned(self.sampler, self.target, self.state, keys, self.minibatch)
        for key in keys:
            one_by_one = jax.jit(_step)(self.sampler, self.target, key, one_by_one, self.minibatch)[0]
        for name, value in one_by_one.coordinates.items():
            near = np.allclose(together.coordinates[name], value, rtol=2e-4, atol=2e-4)
            require(near, "steps inside one compiled loop are the steps one by one")


def _flat(state: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(state)])


def _step(sampler: Sampler, target: Any, key: jax.Array, state: Any, minibatch: Any) -> tuple[Any, Any]:
    return sampler.step(target, key, state, minibatch)


@jax.jit
def _scanned(sampler: Sampler, target: Any, state: Any, keys: jax.Array, minibatch: Any) -> Any:
    return jax.lax.scan(lambda state, key: sampler.step(target, key, state, minibatch), state, keys)[0]
