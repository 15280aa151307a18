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
from longhmm.gradients.arcs import blocks_of, plan_arcs
from longhmm.gradients.buffer_length import BufferEstimate, FixedBuffer, LyapunovBuffer
from longhmm.gradients.coordinates import Coordinates, add, natural, natural_score, prior_gradient
from longhmm.gradients.full_data import log_posterior_and_gradient
from longhmm.gradients.importance import importance_of_blocks
from longhmm.gradients.minibatch import Minibatch, MinibatchSource
from longhmm.gradients.schemes import Windows
from longhmm.kernels.backends import NATIVE, fused, windows_backend
from longhmm.kernels.fused_windows import copied_windows, given_statistics, placed_sums, statistics_of
from longhmm.kernels.statistics import Statistics, mixture_statistics, window_statistics
from longhmm.messages.markov import mixing_time, stationary
from longhmm.model.hmm import HMM

StartLaw = Callable[[Mapping[str, jax.Array]], jax.Array]


class WindowStatistics(Protocol):
    """Statistics of every window of a minibatch. Compared by value, so that compiled code is shared."""

    @property
    def fused(self) -> bool:
        """Whether a fused kernel finds them."""

    def __call__(self, model: HMM, params: Mapping[str, jax.Array], minibatch: Minibatch) -> Statistics: ...


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


@partial(jax.tree_util.register_dataclass, data_fields=("initial",), meta_fields=("model", "sequences"))
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
        spans = (self.windows.core_length, found.length)
        statistics = BufferedStatistics(self.start, fused(model.n_states), *spans)
        return _bind_windows(model, sequences, params, self.windows, found, statistics)


@dataclass(frozen=True)
class IID:
    """Observations taken as independent: the mixture whose weights are the mean row of the transition matrix."""

    windows: Windows = field(default_factory=Windows)

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundWindows:
        found = FixedBuffer(0).estimate(model, params, sequences)
        windows = BufferedStatistics(_only_law, fused(model.n_states), self.windows.core_length, 0)
        return _bind_windows(model, sequences, params, self.windows, found, MixtureStatistics(windows))


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
        blocks = blocks_of(source.cells)
        look = BufferedStatistics(stationary_start, fused(model.n_states), blocks.core_length, found.length)
        importance = importance_of_blocks(model, complete, sequences, blocks, found.length, look)
        source = source.with_arcs(plan_arcs(source.cells, importance, windows.proposal.uniform, source.rotation))
    return BoundWindows(model, source, found, statistics, model.given_initial(complete))


@dataclass(frozen=True)
class BufferedStatistics:
    """Statistics of buffered windows, by the fused kernel where `fused`, else by the reference."""

    start: StartLaw
    fused: bool
    core_length: int
    buffer: int

    def __call__(self, model: HMM, params: Mapping[str, jax.Array], minibatch: Minibatch) -> Statistics:
        spans = (self.core_length, self.buffer)
        if self.fused and minibatch.placed is not None:
            sums = placed_sums(model, params, minibatch.placed, self.law(params), *spans, None)
            return jax.vmap(partial(statistics_of, model, params))(sums)
        if self.fused:
            return given_statistics(model, params, minibatch.windows, self.law(params), *spans)
        law = jax.lax.stop_gradient(self.start(params))
        return window_statistics(model, params, minibatch.windows, law)

    def law(self, params: Mapping[str, jax.Array]) -> jax.Array | None:
        """The law before a window, for the kernel; None for the stationary one, which it finds by itself."""
        return None if self.start is stationary_start else jax.lax.stop_gradient(self.start(params))


def precise_statistics(model: HMM, start: StartLaw, core_length: int, buffer: int) -> BufferedStatistics:
    """Statistics in double precision, which the kernel for GPUs does not have."""
    return BufferedStatistics(start, windows_backend(model.n_states) == NATIVE, core_length, buffer)


def for_kernel(model: HMM, statistics: WindowStatistics, minibatch: Minibatch) -> Minibatch:
    """Windows that were read on the host, also as rows for the fused kernel, where it can read them."""
    if not statistics.fused or minibatch.windows.states is not None:
        return minibatch
    return minibatch._replace(placed=copied_windows(model, minibatch.windows))


@dataclass(frozen=True)
class MixtureStatistics:
    """Statistics of observations taken as independent, by the same kernel."""

    windows: BufferedStatistics

    @property
    def fused(self) -> bool:
        """Whether a fused kernel finds them."""
        return self.windows.fused

    def __call__(self, model: HMM, params: Mapping[str, jax.Array], minibatch: Minibatch) -> Statistics:
        return mixture_statistics(params, lambda flat: self.windows(model, flat, minibatch))


def _only_law(params: Mapping[str, jax.Array]) -> jax.Array:
    """Of a chain that forgets everything at every step."""
    return params["transition"][0]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("source", "initial"),
    meta_fields=("model", "buffer", "statistics"),
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
        """Whether chains are best run together: the fused kernel serves them all in one call."""
        return self.statistics.fused

    def draw(self, key: jax.Array) -> Minibatch:
        """Windows at random, each with one over the probability of its cell as its weight."""
        if self.draws_on_host:
            return jax.tree.map(lambda each: each[0], self.draw_many(key[None]))
        return self.source.draw(key)

    def draw_many(self, keys: jax.Array) -> Minibatch:
        """What `draw` gives for each of some keys, along a leading axis; for windows that are read from files."""
        minibatch = self.source.draw_many(keys)
        windows = minibatch.windows
        values, observed = (np.reshape(each, (-1, each.shape[-1])) for each in (windows.values, windows.observed))
        self.model.emission.check(values, observed, lambda row: f"a value in a window of {self.source.sequences.name}")
        return for_kernel(self.model, self.statistics, minibatch)

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


@partial(jax.jit, static_argnames=("model", "statistics", "prior", "per_window"))
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
    if not per_window and minibatch.placed is not None and isinstance(statistics, BufferedStatistics):
        spans = (statistics.core_length, statistics.buffer)
        sums = placed_sums(model, params, minibatch.placed, statistics.law(params), *spans, minibatch.weights)
        found = total = statistics_of(model, params, sums)
        surplus = sums.excess
    else:
        found = statistics(model, params, minibatch)
        total, surplus = found.total(minibatch.weights), None
    gradient = pull(natural_score(params, total, surplus, initial_moves=initial is None))
    if prior:
        gradient = add(gradient, prior_gradient(model, coordinates))
    return GradientEstimate(gradient, found if per_window else total)
