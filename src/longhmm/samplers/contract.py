"""The contract every sampler keeps, so that one driver, one checkpoint and one result type serve all.

A sampler is a small frozen policy object. `build(model, estimator)` ties it to a model and to a bound gradient
estimator (or, for full-data algorithms, to the data) and returns a `Kernel`: two pure functions,

    init(key, coordinates) -> State
    step(key, state, minibatch) -> (State, Info)

A State is a NamedTuple of arrays with a field `coordinates`, the unconstrained parameters by name. An Info is a
NamedTuple that is always present and has at least the fields of `Info`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import jax

from longhmm.model.hmm import HMM
from longhmm.target.estimators import BoundEstimator, Estimator

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


class Kernel(NamedTuple):
    """A sampler tied to a model and data.

    Attributes:
        init: `(key, coordinates) -> State`.
        step: `(key, state, minibatch) -> (State, Info)`.
        draw: `(key) -> minibatch`, what `step` consumes.
        compiled: whether `draw` and `step` may run inside `jax.jit` and `lax.scan`.
        record: `(state) -> tree`, what is kept of a draw; None keeps `state.coordinates`.
        adapt: `(key, state) -> iterator of (state, share)`, for samplers that adapt before their first step: states on
            the way to the last, from which steps begin, and the share of the way behind each. A run may be stopped
            between two of them. The key is that of `init`.
    """

    init: Callable[[jax.Array, Coordinates], Any]
    step: Callable[[jax.Array, Any, Any], tuple[Any, Any]]
    draw: Callable[[jax.Array], Any]
    compiled: bool
    record: Callable[[Any], Any] | None = None
    adapt: Callable[[jax.Array, Any], Iterator[tuple[Any, float]]] | None = None

    def start(self, key: jax.Array, coordinates: Coordinates) -> Any:
        """The state from which steps begin: `init`, and all of `adapt`."""
        states = [self.init(key, coordinates)]
        if self.adapt is not None:
            states += [state for state, _ in self.adapt(key, states[0])][-1:]
        return states[-1]


class Sampler(Protocol):
    """A policy that becomes a kernel."""

    @property
    def name(self) -> str:
        """Short name for tables and progress bars."""

    def estimator(self, windows: Any, buffer: Any) -> Estimator:
        """The gradient estimator this sampler uses with the user's choice of windows and buffer (None: default)."""

    def build(self, model: HMM, estimator: BoundEstimator) -> Kernel:
        """Tie the sampler to a model and data."""
