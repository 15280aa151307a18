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

from longhmm.backends.evaluate import Statistics, serves_many, window_statistics
from longhmm.data.sequences import Sequences
from longhmm.inference.markov import excess, mixing_time, stationary
from longhmm.model.hmm import HMM
from longhmm.target.buffer_length import BufferEstimate, FixedBuffer, LyapunovBuffer
from longhmm.target.coordinates import Coordinates, add, natural, natural_score, prior_gradient
from longhmm.target.full_data import log_posterior_and_gradient
from longhmm.target.importance import importance_of_groups
from longhmm.target.minibatch import Minibatch, MinibatchSource, with_numbers
from longhmm.target.systematic import Windows, groups_of, plan_unequal

StartLaw = Callable[[Mapping[str, jax.Array]], jax.Array]


class GradientEstimate(NamedTuple):
    """An estimate of the gradient of the log posterior in unconstrained coordinates.

    Attributes:
        gradient: by name, as `constrain` takes them.
        statistics: expected statistics of the windows: summed, each times its weight, so that they estimate those of
            all data; or, where those of every window were asked for, without weights and with a leading axis. None for
            the full-data gradient.
    """

    gradient: dict[str, Any]
    statistics: Statistics | None


class BoundEstimator(Protocol):
    """What every estimator becomes once it is tied to a model and data."""

    def draw(self, key: jax.Array) -> Any:
        """A minibatch."""

    def estimate(
        self, coordinates: Mapping[str, jax.Array], minibatch: Any, *, prior: bool = True, per_window: bool = False
    ) -> GradientEstimate:
        """The gradient of the log posterior, or of the log likelihood, at these coordinates."""


class ReadsFiles(Protocol):
    """A bound estimator whose windows may come from files: many minibatches are then read together."""

    def draw_many(self, keys: jax.Array) -> Any:
        """What `draw` gives for each of some keys, along a leading axis."""


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
        model.check_dim(sequences)
        return BoundFullData(model, sequences, model.given_initial(model.validate(params)))


@partial(jax.tree_util.register_dataclass, data_fields=("model", "initial"), meta_fields=("sequences",))
@dataclass(frozen=True)
class BoundFullData:
    """The exact gradient of one model on one data set; `initial` as for `BoundWindows`."""

    model: HMM
    sequences: Sequences
    initial: np.ndarray | None

    def draw(self, key: jax.Array) -> Sequences:
        """All the data, whatever the key."""
        return self.sequences

    def estimate(
        self,
        coordinates: Mapping[str, jax.Array],
        minibatch: Sequences,
        *,
        prior: bool = True,
        per_window: bool = False,
    ) -> GradientEstimate:
        with jax.enable_x64(True):
            wide = {name: jnp.asarray(np.asarray(value), jnp.float64) for name, value in coordinates.items()}
            params = jax.tree.map(np.asarray, self.model.constrain(wide))
        if self.initial is not None:
            params = {**params, "initial": self.initial}
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
        return _bind_windows(model, sequences, params, self.windows, found, WindowStatistics(self.start))


@dataclass(frozen=True)
class IID:
    """Observations taken as independent: the mixture whose weights are the mean row of the transition matrix."""

    windows: Windows = field(default_factory=Windows)

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundWindows:
        found = FixedBuffer(0).estimate(model, params, sequences)
        return _bind_windows(model, sequences, params, self.windows, found, WindowStatistics(_only_law, mixture=True))


def _bind_windows(
    model: HMM,
    sequences: Sequences,
    params: Mapping[str, Any],
    windows: Windows,
    found: BufferEstimate,
    statistics: WindowStatistics,
) -> BoundWindows:
    model.check_dim(sequences)
    complete = model.validate(params)
    if sequences.in_memory:
        model.check_data(sequences)  # what lies in files is checked as it is read
    source = MinibatchSource(sequences, windows, found.length, mixing_time(complete["transition"]), model)
    if windows.proposal is not None:
        blocks = groups_of(source.cells)
        look = WindowStatistics(stationary_start)
        importance = importance_of_groups(model, complete, sequences, blocks, found.length, look)
        source = source.with_unequal(plan_unequal(source.cells, importance, windows.proposal.uniform, source.scheme))
    return BoundWindows(model, source, found, statistics, model.given_initial(complete))


@dataclass(frozen=True)
class WindowStatistics:
    """Statistics of the windows of a minibatch. Compared by value, so that compiled code is shared.

    Attributes:
        start: the distribution of the state before a window.
        mixture: take observations as independent.
    """

    start: StartLaw
    mixture: bool = False

    def __call__(
        self, model: HMM, params: Mapping[str, jax.Array], minibatch: Minibatch, weights: jax.Array | None = None
    ) -> Statistics:
        """Of every window, or, with weights, of all together."""
        if self.mixture:
            return _mixture_statistics(params, lambda flat: self._windows(model, flat, minibatch, weights))
        return self._windows(model, params, minibatch, weights)

    def _windows(
        self, model: HMM, params: Mapping[str, jax.Array], minibatch: Minibatch, weights: jax.Array | None
    ) -> Statistics:
        start = self.first_message(params)
        return window_statistics(model, params, minibatch.rows, minibatch.numbers, minibatch.layout, start, weights)

    def first_message(self, params: Mapping[str, jax.Array]) -> jax.Array | None:
        """The distribution before windows; None for the stationary one, which backends find by themselves."""
        return None if self.start is stationary_start else jax.lax.stop_gradient(self.start(params))


def _mixture_statistics(
    params: Mapping[str, jax.Array], find: Callable[[Mapping[str, jax.Array]], Statistics]
) -> Statistics:
    """The same for observations taken as independent: a mixture whose weights are the mean of the rows of `A`.

    `find` gives the statistics of windows at the parameters of a chain that forgets everything at every step. With
    `w_j = sum_i A[i, j] / K`, the derivative with respect to `A[i, j]` has the form of expected transitions: the
    responsibility of state j is shared out over the rows in proportion to `A[i, j]`.
    """
    transition = params["transition"]
    weights = jnp.mean(transition, axis=0)
    found = find({**params, "transition": jnp.broadcast_to(weights, transition.shape), "initial": weights})
    visits = found.first + jnp.sum(found.transitions, axis=-2)
    reached = jnp.sum(transition, axis=0)
    share = transition / jnp.where(reached > 0, reached, 1.0)  # a state that no row leads to has no visits
    transitions = visits[..., None, :] * share
    return found._replace(
        first=jnp.zeros_like(found.first), transitions=transitions, centred=excess(transitions, transition)
    )


def _only_law(params: Mapping[str, jax.Array]) -> jax.Array:
    """Of a chain that forgets everything at every step."""
    return params["transition"][0]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("model", "source", "initial"),
    meta_fields=("buffer", "statistics"),
)
@dataclass(frozen=True, eq=False)
class BoundWindows:
    """Minibatch gradients of one model on one data set.

    `initial` is the law of first states that the parameters brought along, a constant; None for the model's own.
    """

    model: HMM
    source: MinibatchSource
    buffer: BufferEstimate
    statistics: WindowStatistics
    initial: np.ndarray | None

    @property
    def draws_on_host(self) -> bool:
        """Whether windows are read from files, outside compiled code."""
        return not self.source.on_device

    @property
    def shares_calls(self) -> bool:
        """Whether chains are best run together: one call serves them all."""
        return serves_many(self.model)

    def draw(self, key: jax.Array) -> Minibatch:
        """Windows at random, each with one over the probability of its cell as its weight."""
        if self.draws_on_host:
            return jax.tree.map(lambda each: each[0], self.draw_many(key[None]))
        return self.source.draw(key)

    def draw_many(self, keys: jax.Array) -> Minibatch:
        """What `draw` gives for each of some keys, along a leading axis; for windows that are read from files."""
        minibatch = self.source.draw_many(keys)
        rows = minibatch.rows
        values, observed = (np.reshape(each, (-1, each.shape[-1])) for each in (rows.values, rows.observed))
        self.model.emission.check(values, observed, lambda row: f"a value in a window of {self.source.sequences.name}")
        return with_numbers(self.model, minibatch)

    def estimate(
        self,
        coordinates: Mapping[str, jax.Array],
        minibatch: Minibatch,
        *,
        prior: bool = True,
        per_window: bool = False,
    ) -> GradientEstimate:
        how = (self.statistics, prior, per_window)
        return window_estimate(self.model, *how, dict(coordinates), self.initial, minibatch)


@partial(jax.jit, static_argnames=("statistics", "prior", "per_window"))
def window_estimate(
    model: HMM,
    statistics: WindowStatistics,
    prior: bool,
    per_window: bool,
    coordinates: Coordinates,
    initial: Any,
    minibatch: Minibatch,
) -> GradientEstimate:
    params, pull = natural(model, coordinates)
    if initial is not None:
        params = {**params, "initial": jnp.asarray(initial, params["transition"].dtype)}
    found = statistics(model, params, minibatch, None if per_window else minibatch.weights)
    total = found.total(minibatch.weights) if per_window else found
    gradient = pull(natural_score(params, total, initial_moves=initial is None))
    if prior:
        gradient = add(gradient, prior_gradient(model, coordinates))
    return GradientEstimate(gradient, found if per_window else total)
