"""Estimators of the gradient of the log posterior, all of one form.

An estimator is a small policy object. `bind(model, data, params)` ties it to a model and data and fixes buffer and gap
at `params`; what comes back draws a minibatch from a key and turns it, at any coordinates, into an estimate.

    minibatch = bound.draw(key)
    estimate = bound.estimate(coordinates, minibatch)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.gradients.buffer_length import BufferEstimate, FixedBuffer, LyapunovBuffer
from longhmm.gradients.coordinates import Coordinates, add, prior_gradient, scale, score
from longhmm.gradients.full_data import log_posterior_and_gradient
from longhmm.gradients.minibatch import Minibatch, MinibatchSource
from longhmm.gradients.schemes import Windows
from longhmm.kernels.statistics import Statistics, mixture_statistics, window_statistics
from longhmm.messages.markov import mixing_time, stationary
from longhmm.model.hmm import HMM

StartLaw = Callable[[Mapping[str, jax.Array]], jax.Array]
WindowStatistics = Callable[[HMM, Mapping[str, jax.Array], Minibatch], Statistics]


class GradientEstimate(NamedTuple):
    """An estimate of the gradient of the log posterior in unconstrained coordinates.

    Attributes:
        gradient: by name, as `constrain` takes them.
        statistics: expected statistics of every window, unscaled (None for the full-data gradient).
    """

    gradient: Coordinates
    statistics: Statistics | None


class BoundEstimator(Protocol):
    """What every estimator becomes once it is tied to a model and data."""

    def draw(self, key: jax.Array) -> Any:
        """A minibatch."""

    def estimate(self, coordinates: Mapping[str, jax.Array], minibatch: Any, *, prior: bool = True) -> GradientEstimate:
        """The gradient of the log posterior, or of the log likelihood, at these coordinates."""


class Estimator(Protocol):
    """A policy: which windows, with which buffer."""

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundEstimator:
        """Tie the policy to a model and data, with buffer and gap as `params` need them."""


def stationary_start(params: Mapping[str, jax.Array]) -> jax.Array:
    """Windows begin from the stationary law of the current transition matrix: unbiased scores at the truth."""
    return stationary(params["transition"])


def uniform_start(params: Mapping[str, jax.Array]) -> jax.Array:
    """Windows begin from a uniform law, as in the paper's experiments."""
    n_states = params["transition"].shape[0]
    return jnp.full(n_states, 1.0 / n_states, params["transition"].dtype)


# Full data ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FullData:
    """The exact gradient, from one pass over everything."""

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundFullData:
        return BoundFullData(model, sequences)


@dataclass(frozen=True)
class BoundFullData:
    model: HMM
    sequences: Sequences

    def draw(self, key: jax.Array) -> Sequences:
        """All the data, whatever the key."""
        return self.sequences

    def estimate(
        self, coordinates: Mapping[str, jax.Array], minibatch: Sequences, *, prior: bool = True
    ) -> GradientEstimate:
        with jax.enable_x64(True):
            wide = {name: jnp.asarray(np.asarray(value), jnp.float64) for name, value in coordinates.items()}
            params = jax.tree.map(np.asarray, self.model.constrain(wide))
        _, gradient = log_posterior_and_gradient(self.model, params, minibatch, prior=prior)
        return GradientEstimate(gradient, None)


# Windows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Buffered:
    """Windows with a buffer on each side; `FixedBuffer(0)` gives the unbuffered estimator.

    Args:
        windows: how many windows of which half-width.
        buffer: `LyapunovBuffer(...)` or `FixedBuffer(...)`.
        start: law of the state before a window: `stationary_start` or `uniform_start`.
    """

    windows: Windows = field(default_factory=Windows)
    buffer: LyapunovBuffer | FixedBuffer = field(default_factory=LyapunovBuffer)
    start: StartLaw = stationary_start

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundWindows:
        found = self.buffer.estimate(model, params, sequences)
        return _bind_windows(model, sequences, params, self.windows, found, partial(_buffered, self.start))


@dataclass(frozen=True)
class IID:
    """Observations taken as independent: the mixture whose weights are the mean row of the transition matrix."""

    windows: Windows = field(default_factory=Windows)

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundWindows:
        return _bind_windows(model, sequences, params, self.windows, FixedBuffer(0).estimate(model, params, sequences), _mixture)


def _bind_windows(
    model: HMM,
    sequences: Sequences,
    params: Mapping[str, Any],
    windows: Windows,
    found: BufferEstimate,
    statistics: WindowStatistics,
) -> BoundWindows:
    steps = mixing_time(np.asarray(model.validate(params)["transition"]))
    return BoundWindows(model, MinibatchSource(sequences, windows, found.length, steps), found, statistics)


def _buffered(start: StartLaw, model: HMM, params: Mapping[str, jax.Array], minibatch: Minibatch) -> Statistics:
    return window_statistics(model, params, minibatch.windows, jax.lax.stop_gradient(start(params)))


def _mixture(model: HMM, params: Mapping[str, jax.Array], minibatch: Minibatch) -> Statistics:
    return mixture_statistics(model, params, minibatch.windows)


@dataclass(frozen=True, eq=False)
class BoundWindows:
    """Minibatch gradients of one model on one data set."""

    model: HMM
    source: MinibatchSource
    buffer: BufferEstimate
    statistics: WindowStatistics

    def draw(self, key: jax.Array) -> Minibatch:
        """Windows at random, each cell with probability S/N."""
        return self.source.draw(key)

    def estimate(
        self, coordinates: Mapping[str, jax.Array], minibatch: Minibatch, *, prior: bool = True
    ) -> GradientEstimate:
        return _window_estimate(self.model, self.statistics, prior, dict(coordinates), minibatch)


@partial(jax.jit, static_argnames=("model", "statistics", "prior"))
def _window_estimate(
    model: HMM, statistics: WindowStatistics, prior: bool, coordinates: Coordinates, minibatch: Minibatch
) -> GradientEstimate:
    found = statistics(model, model.constrain(coordinates), minibatch)
    gradient = scale(minibatch.weight, score(model, coordinates, found.total()))
    if prior:
        gradient = add(gradient, prior_gradient(model, coordinates))
    return GradientEstimate(gradient, found)


# Control variates -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ControlVariate:
    """Buffered windows that only estimate the difference to a centre where the gradient is known exactly.

    `g(theta) = G* + (N/S) sum_c [g_c(theta) - g_c(theta*)] + (prior difference)` (F15): the noise vanishes at the
    centre, and so does the bias of the buffer.

    Args:
        centre: natural parameters `theta*`; None takes the parameters the estimator is bound at.
    """

    windows: Windows = field(default_factory=Windows)
    buffer: LyapunovBuffer | FixedBuffer = field(default_factory=LyapunovBuffer)
    start: StartLaw = stationary_start
    centre: Mapping[str, Any] | None = None

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundControlVariate:
        plain = Buffered(self.windows, self.buffer, self.start).bind(model, sequences, params)
        centre = model.validate(params if self.centre is None else self.centre)
        _, gradient = log_posterior_and_gradient(model, centre, sequences, prior=False)
        with jax.enable_x64(True):
            coordinates = jax.tree.map(np.asarray, model.unconstrain({k: jnp.asarray(v) for k, v in centre.items()}))
        return BoundControlVariate(plain, coordinates, gradient)


@dataclass(frozen=True, eq=False)
class BoundControlVariate:
    """Control-variate gradients: `centre` are the coordinates of theta*, `exact` the gradient of the likelihood there."""

    plain: BoundWindows
    centre: dict[str, np.ndarray]
    exact: dict[str, np.ndarray]

    def draw(self, key: jax.Array) -> Minibatch:
        """Windows at random, each cell with probability S/N."""
        return self.plain.draw(key)

    def estimate(
        self, coordinates: Mapping[str, jax.Array], minibatch: Minibatch, *, prior: bool = True
    ) -> GradientEstimate:
        model, statistics = self.plain.model, self.plain.statistics
        return _controlled(model, statistics, prior, dict(coordinates), self.centre, self.exact, minibatch)


@partial(jax.jit, static_argnames=("model", "statistics", "prior"))
def _controlled(
    model: HMM,
    statistics: WindowStatistics,
    prior: bool,
    coordinates: Coordinates,
    centre: Coordinates,
    exact: Coordinates,
    minibatch: Minibatch,
) -> GradientEstimate:
    here = _window_estimate(model, statistics, prior, coordinates, minibatch)
    there = _window_estimate(model, statistics, False, jax.tree.map(jnp.asarray, centre), minibatch)
    gradient = add(jax.tree.map(jnp.asarray, exact), here.gradient, scale(-1.0, there.gradient))
    return GradientEstimate(gradient, here.statistics)
