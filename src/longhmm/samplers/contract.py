"""The contract every sampler keeps, so that one driver, one checkpoint and one result type serve all.

A sampler is a small frozen dataclass, derived from `Sampler`, with two pure functions, `init` and `step`. A State is a
NamedTuple of arrays with a field `coordinates`, the unconstrained parameters by name; an `Info` says what a step did.
A sampler that finds its own settings returns, from `tune`, a copy of itself that holds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.evaluate import in_double
from longhmm.errors import ModelError
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.progress import Bar
from longhmm.target.buffered import Buffered
from longhmm.target.coordinates import Arrays
from longhmm.target.target import Estimator, Target

Coordinates = Params
State = TypeVar("State")
SECONDS = 0.25  # a block of steps takes about as long, or is a single step


class Info(NamedTuple):
    """What every step reports."""

    gradient: Coordinates  # of the log posterior, as the step used it, at the coordinates before the step; or zeros
    finite: Array  # False if the step met a number that is not finite; the driver then stops the chain
    stats: dict[str, Any] = {}  # noqa: RUF012 numbers to be kept with the draw, by name; a tree for JAX, never changed


class Start(NamedTuple):
    """What a run tells a sampler that tunes itself: the user's choices (None where they are left open), and a bar."""

    init: Params | None = None
    windows: Any = None
    buffer: Any = None
    seed: int = 0
    bar: Bar = Bar(False)
    near: Any = None  # coordinates close to the mode and the curvature there, where they are known


class Sampler:
    """A sampler that needs windows of the data, runs in single precision and has nothing to tune.

    Attributes:
        name: short, for tables and progress bars.
        cites: keys of its references.
        x64: whether it runs in double precision.
        sees: what it sees of the data, where windows and buffer play no part.
        varying: whether it serves transitions without Dirichlet rows, by gradients.
        coupled: whether it serves emissions that depend on the state before.
        learned: fields that compiled code takes as arguments, trees of arrays such as what `tune` found; other fields
            are its constants.
        retunes: how often, at most, `retune` is asked for another sampler after the warm-up.
        warmup: steps of the warm-up, where the user does not say.
        spacing: steps between two draws, where the user does not say.
        cost: rows that an independent draw costs, about; 0 where that is not known.
    """

    name: ClassVar[str]
    cites: ClassVar[tuple[str, ...]] = ()
    x64: ClassVar[bool] = False
    sees: ClassVar[Estimator | None] = None
    varying: ClassVar[bool] = True
    coupled: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ()
    retunes: ClassVar[int] = 0
    warmup: Any = 1000
    spacing: Any = 1
    cost: Any = 0.0

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, _flatten, partial(_unflatten, cls))

    def check(self, model: HMM) -> None:
        """Refuse a model that it does not serve, in one sentence."""
        remedy = "use NUTS(), or leave the sampler to longhmm"
        if not (model.transitions.dirichlet or self.varying):
            raise ModelError(
                f"{self.name} needs one transition matrix with Dirichlet rows, got {type(model.transitions).__name__}: "
                f"{remedy}."
            )
        if (model.emission.couples or model.memory is not None) and not self.coupled:
            raise ModelError(
                f"{self.name} needs emissions that depend on the present state alone, got {model.emission!r}, which "
                f"depends on the one before too: {remedy}."
            )

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """What it sees of the data, with the user's choice of windows and buffer (None: default)."""
        given = {"windows": windows, "buffer": buffer}
        return self.sees or Buffered(**{name: value for name, value in given.items() if value is not None})

    def tune(self, target: Target, start: Start) -> Sampler:
        """The same sampler with the settings that suit all data, which `target` passes over."""
        return self

    def starts(self, chains: int, seed: int) -> list[Arrays] | None:
        """Coordinates at which chains begin; None leaves them to the run."""
        return None

    def init(self, target: Any, key: Array, u: Coordinates) -> Any:
        """The state from which a chain begins; the place to refuse a target."""
        raise NotImplementedError

    def step(self, target: Any, key: Array, state: Any, minibatch: Any) -> tuple[Any, Any]:
        """The next state, and what happened."""
        raise NotImplementedError

    def adapt(self, target: Any, key: Array, state: Any) -> Iterator[tuple[Any, float]]:
        """States on the way to the one from which steps begin, and the share of the way behind each; `init`'s key."""
        yield from ()

    def record(self, state: Any) -> Any:
        """What is kept of a draw, a tree of arrays."""
        return state.coordinates

    def coordinates(self, recorded: Any) -> Arrays:
        """Coordinates `(chain, draw, ...)` of what was recorded."""
        return {name: np.asarray(value, np.float64) for name, value in recorded.items()}

    def unsettled(self, target: Any, recorded: Any) -> bool:
        """Whether the second half of the warm-up, as recorded, asks for another tuning."""
        return False

    def retune(self, target: Any, recorded: Any) -> Sampler:
        """The sampler to go on with, where `unsettled`."""
        return self

    def halved(self) -> Sampler | None:
        """The same sampler with half the step; None where it has none of its own."""
        return None

    def mode(self) -> tuple[Arrays, np.ndarray] | None:
        """The mode and the information there, where `tune` found them."""
        return None

    def describe(self, target: Any) -> dict[str, Any]:
        """What `tune` chose, as plain values, to be kept with the draws."""
        return {} if target.buffer is None else {"buffer": target.buffer.length}

    def notes(self) -> list[str]:
        """What the user should know of the tuning, one sentence each."""
        return []


def _flatten(sampler: Any) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    learned = sampler.learned
    constants = ((each.name, getattr(sampler, each.name)) for each in fields(sampler) if each.name not in learned)
    return tuple(getattr(sampler, name) for name in learned), tuple(constants)


def _unflatten(cls: Any, constants: tuple[tuple[str, Any], ...], children: tuple[Any, ...]) -> Any:
    sampler = object.__new__(cls)
    for name, value in (*constants, *zip(cls.learned, children, strict=True)):
        object.__setattr__(sampler, name, value)
    return sampler


def all_finite(tree: Any) -> Array:
    """Whether every number in a tree of arrays is finite."""
    return jnp.all(jnp.isfinite(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])))


# Compiled steps in blocks that are short enough to look at the clock in between ------------------------------------


def block_size(count: int, seconds: float) -> int:
    """Steps of the next block, after one of `count` steps that took so long: at most twice as many."""
    return max(1, min(2 * count, int(count * SECONDS / max(seconds, 1e-9))))


def in_blocks(
    step: Callable[..., State], key: Array, state: State, steps: int, *given: Any
) -> Iterator[tuple[State, int]]:
    """States after blocks of steps `step(number, key, state, *given)`, with the number of steps behind each.

    What a step does depends on its number alone, so that blocks, which depend on the clock, change nothing.
    """
    with in_double():
        keys = jax.random.split(key, steps)
    # In the types that a step returns: Python's own numbers would need a program of their own for the first block.
    done, count, state = 0, 1, jax.tree.map(np.asarray, state)
    while done < steps:
        began = time.monotonic()
        with in_double():
            state = jax.block_until_ready(_block(step, keys, state, done, count, given))
        done += count
        yield state, done
        count = min(block_size(count, time.monotonic() - began), steps - done)


@partial(jax.jit, static_argnums=0)
def _block(step: Callable[..., State], keys: Array, state: State, first: int, count: int, given: Any) -> State:
    return jax.lax.fori_loop(first, first + count, lambda number, at: step(number, keys[number], at, *given), state)
