"""The contract every sampler keeps, so that one driver, one checkpoint and one result type serve all.

A sampler is a small frozen dataclass, derived from `Sampler`, with two pure functions of what it sees of the data:

    init(target, key, u) -> State
    step(target, key, state, minibatch) -> (State, Info)

A State is a NamedTuple of arrays with a field `coordinates`, the unconstrained parameters by name. An Info is a
NamedTuple that has at least the fields of `Info`. Everything else has a default: see `Sampler`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.target.estimators import Buffered
from longhmm.target.target import Estimator

Coordinates = Mapping[str, jax.Array]


class Info(NamedTuple):
    """What every step reports.

    Attributes:
        gradient: the gradient of the log posterior that the step used, paired with the coordinates before the step;
            zeros for samplers that use none.
        finite: False if the step met a number that is not finite; the driver then stops the chain.
    """

    gradient: Coordinates
    finite: jax.Array


class Sampler:
    """A sampler that needs windows of the data, runs in single precision and has nothing to tune.

    Attributes:
        name: short, for tables and progress bars.
        cites: keys of its references.
        x64: whether it runs in double precision.
        learned: fields that hold what `tune` found, as trees of arrays. Other fields are constants of compiled code.
    """

    name: ClassVar[str]
    cites: ClassVar[tuple[str, ...]] = ()
    x64: ClassVar[bool] = False
    learned: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(cls, _flatten, partial(_unflatten, cls))

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """What it sees of the data, with the user's choice of windows and buffer (None: default)."""
        return Buffered(**chosen(windows, buffer))

    def init(self, target: Any, key: jax.Array, u: Coordinates) -> Any:
        """The state from which a chain begins; the place to refuse a model or a target."""
        raise NotImplementedError

    def step(self, target: Any, key: jax.Array, state: Any, minibatch: Any) -> tuple[Any, Any]:
        """The next state, and what happened."""
        raise NotImplementedError

    def adapt(self, target: Any, key: jax.Array, state: Any) -> Iterator[tuple[Any, float]]:
        """States on the way to the one from which steps begin, and the share of the way behind each.

        A run may be stopped between two of them. The key is that of `init`.
        """
        yield from ()

    def record(self, state: Any) -> Any:
        """What is kept of a draw, a tree of arrays."""
        return state.coordinates


def _flatten(sampler: Any) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    learned = sampler.learned
    constants = ((each.name, getattr(sampler, each.name)) for each in fields(sampler) if each.name not in learned)
    return tuple(getattr(sampler, name) for name in learned), tuple(constants)


def _unflatten(cls: Any, constants: tuple[tuple[str, Any], ...], children: tuple[Any, ...]) -> Any:
    sampler = object.__new__(cls)
    for name, value in (*constants, *zip(cls.learned, children, strict=True)):
        object.__setattr__(sampler, name, value)
    return sampler


def chosen(windows: Any, buffer: Any) -> dict[str, Any]:
    """The user's choice of windows and buffer as arguments of an estimator; what is None keeps its default."""
    given = {"windows": windows, "buffer": buffer}
    return {name: value for name, value in given.items() if value is not None}


def all_finite(tree: Any) -> jax.Array:
    """Whether every number in a tree of arrays is finite."""
    return jnp.all(jnp.isfinite(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])))
