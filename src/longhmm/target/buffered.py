"""Policies that become targets: all data, windows with buffers, and windows of rows taken as independent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends import stream
from longhmm.backends.evaluate import Statistics, serves_many, window_statistics
from longhmm.backends.read import partly_observed
from longhmm.data.executor import ahead
from longhmm.data.layout import Partition
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.inference.markov import centred_counts, mixing_time, stationary
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.target.buffer_length import BufferEstimate, FixedBuffer, LyapunovBuffer
from longhmm.target.coordinates import Coordinates, add, natural, natural_score, prior_gradient
from longhmm.target.leverage import group_leverage
from longhmm.target.minibatch import Minibatch, MinibatchSource, host_rows, with_numbers
from longhmm.target.systematic import Windows, groups_of, plan_unequal
from longhmm.target.target import Estimate, StreamedPosterior, Target, impossible_windows

ROWS = 1 << 18  # looked at together for the importance of blocks
BITS = 8  # of the rates that are kept

StartDistribution = Callable[[Params], Array]


def stationary_start(params: Params) -> Array:
    """Windows begin from the stationary distribution of the current transition matrix: unbiased scores at the truth."""
    return stationary(params["transition"])


def uniform_start(params: Params) -> Array:
    """Windows begin from a uniform distribution, as in the paper's experiments."""
    n_states = params["transition"].shape[0]
    return jnp.full(n_states, 1.0 / n_states, params["transition"].dtype)


def only_row(params: Params) -> Array:
    """That of a chain that forgets everything at every step: observations are taken as independent."""
    return jnp.asarray(params["transition"])[0]


@dataclass(frozen=True)
class FullData:
    """The exact gradient, from one pass over everything."""

    def bind(self, model: HMM, sequences: Sequences, params: Params) -> StreamedPosterior:
        model.check_dim(sequences)
        return StreamedPosterior(model, sequences, model.given_initial(model.validate(params)))


@dataclass(frozen=True)
class Buffered:
    """Windows with a buffer on each side; `FixedBuffer(0)` gives the unbuffered estimator.

    Args:
        windows: how many windows of which half-width.
        buffer: `LyapunovBuffer(...)` or `FixedBuffer(...)`.
        start: distribution of the state before a window: `stationary_start` or `uniform_start`.
    """

    windows: Windows = field(default_factory=Windows)
    buffer: LyapunovBuffer | FixedBuffer = field(default_factory=LyapunovBuffer)
    start: StartDistribution = stationary_start

    def bind(self, model: HMM, sequences: Sequences, params: Params) -> WindowTarget:
        buffer = self.buffer.estimate(model, params, sequences)
        model.check_dim(sequences)
        complete = model.validate(params)
        partly_observed(model, sequences)  # what lies in files is checked as it is read
        source = MinibatchSource(sequences, self.windows, buffer.length, mixing_time(complete["transition"]), model)
        if self.windows.proposal is not None:
            importance = group_importance(model, complete, sequences, groups_of(source.partition), buffer.length)
            uniform = self.windows.proposal.uniform
            source = source.with_unequal(plan_unequal(source.partition, importance, uniform, source.scheme))
        return WindowTarget(model, self.start, model.given_initial(complete), source, buffer)


@dataclass(frozen=True)
class IID:
    """Observations taken as independent: the mixture whose weights are the mean row of the transition matrix."""

    windows: Windows = field(default_factory=Windows)

    def bind(self, model: HMM, sequences: Sequences, params: Params) -> WindowTarget:
        if model.transitions.varies:
            raise ModelError(
                f"IID() needs one transition matrix, got {type(model.transitions).__name__}, whose matrices follow "
                "covariates: use Buffered(...)."
            )
        return Buffered(self.windows, FixedBuffer(0), only_row).bind(model, sequences, params)


def windows_of(
    model: HMM,
    params: Params,
    minibatch: Minibatch,
    weights: Array | None = None,
    start: StartDistribution | Array = stationary_start,
) -> Statistics:
    """Statistics of every window of a minibatch, or, with weights, of all together."""

    def at(params: Params) -> Statistics:
        rows = minibatch.rows, minibatch.numbers, minibatch.layout
        return window_statistics(model, params, *rows, first_message(start, params), weights)

    return _mixture_statistics(params, at) if start is only_row else at(params)


def first_message(start: StartDistribution | Array, params: Params) -> Array | None:
    """The distribution before windows; None for the stationary one, which backends find by themselves."""
    return None if start is stationary_start else jax.lax.stop_gradient(start(params) if callable(start) else start)


def _mixture_statistics(params: Params, find: Callable[[Params], Statistics]) -> Statistics:
    """The same for observations taken as independent. The derivative with respect to `A[i, j]` has the form of expected
    transitions: what state j is responsible for, shared out in proportion to `A[i, j]`."""
    transition = params["transition"]
    weights = jnp.mean(transition, axis=0)
    found = find({**params, "transition": jnp.broadcast_to(weights, transition.shape), "initial": weights})
    visits = found.first + jnp.sum(found.transitions, axis=-2)
    reached = jnp.sum(transition, axis=0)
    share = transition / jnp.where(reached > 0, reached, 1.0)  # a state that no row leads to has no visits
    transitions = visits[..., None, :] * share
    return found._replace(
        first=jnp.zeros_like(found.first), transitions=transitions, centred=centred_counts(transitions, transition)
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class WindowTarget(Target):
    """Minibatches of windows."""

    model: HMM
    start: StartDistribution = field(metadata={"static": True})
    initial: Any
    source: MinibatchSource
    buffer: BufferEstimate | None = field(default=None, metadata={"static": True})
    counts: ClassVar[bool] = True
    apart: ClassVar[bool] = True

    @property
    def sequences(self) -> Sequences:  # type: ignore[override]
        return self.source.sequences

    @property
    def on_host(self) -> bool:
        return not self.source.on_device

    @property
    def together(self) -> bool:
        return serves_many(self.model)

    def minibatch(self, key: Array) -> Minibatch:
        """Windows at random, each with one over the probability of its block as its weight."""
        if self.on_host:
            first: Minibatch = jax.tree.map(lambda each: each[0], self.minibatches(key[None]))
            return first
        return self.source.draw(key)

    def minibatches(self, keys: Array) -> Minibatch:
        minibatch = self.source.draw_many(keys)
        rows = minibatch.rows
        values, observed = (np.reshape(each, (-1, each.shape[-1])) for each in (rows.values, rows.observed))
        self.model.emission.check(values, observed, lambda row: f"a value in a window of {self.source.sequences.name}")
        return with_numbers(self.model, minibatch)

    def estimate(self, u: Params, minibatch: Minibatch, *, per_window: bool = False) -> Estimate:
        found: Estimate = window_estimate(self.model, self.start, per_window, dict(u), self.initial, minibatch)
        return found


@partial(jax.jit, static_argnames=("start", "per_window"))
def window_estimate(
    model: HMM, start: StartDistribution, per_window: bool, u: Coordinates, initial: Any, minibatch: Minibatch
) -> Estimate:
    params, pull = natural(model, u)
    if initial is not None:
        params = {**params, "initial": jnp.asarray(initial, params["transition"].dtype)}
    found = windows_of(model, params, minibatch, None if per_window else minibatch.weights, start)
    totals = found.total(minibatch.weights) if per_window else found
    likelihood = pull(natural_score(params, totals, initial_moves=initial is None))
    gradient = add(likelihood, prior_gradient(model, u))
    lost = impossible_windows(totals, minibatch)
    return Estimate(gradient, likelihood, totals, found if per_window else None, lost)


def group_importance(model: HMM, params: Params, sequences: Sequences, groups: Partition, buffer: int) -> np.ndarray:
    """`(G,)`, how much each group of blocks matters at `params`: its share of what is known about each parameter (F28).
    Rows are read on the host wherever the data lie, so that the same data give the same table."""
    narrow = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    totals, moves = stream.totals(model, params, sequences), model.transitions
    others = moves.allowed & ~np.eye(model.n_states, dtype=bool)
    prior = np.where(others, moves.concentration if moves.dirichlet else 1.0, 1.0)
    visits = totals.first + totals.transitions.sum(axis=0)
    # What one visit to each state, and one transition of each kind, adds.
    rates = _few_bits(1.0 / (visits + 1.0)), _few_bits(others / (totals.transitions + prior))
    batch = min(max(1, ROWS // groups.width(buffer)), groups.n_blocks)
    weights = np.ones(batch, np.float32)

    def read(index: int) -> Minibatch:
        numbers = np.arange(index * batch, (index + 1) * batch)
        padded = np.minimum(numbers, groups.n_blocks - 1)  # one shape, and so one program
        return Minibatch(*host_rows(sequences, groups, padded, buffer, model.lags), weights)

    found = [_shares(model, narrow, *rates, each) for each in ahead(read, -(-groups.n_blocks // batch))]
    shares = np.concatenate([np.asarray(each, np.float64) for each in found], axis=1)[:, : groups.n_blocks]
    shares = np.where(np.isfinite(shares), shares, 0.0)  # rows that no parameters can explain
    leverage = group_leverage(model, sequences, groups)
    shares = shares if leverage is None else np.vstack([shares, _few_bits(leverage)])
    sums = shares.sum(axis=1, keepdims=True)
    importance = np.divide(shares, sums, out=np.zeros_like(shares), where=sums > 0).sum(axis=0)
    # One state makes no transitions; where nothing can be explained, nothing is known to matter more.
    return importance if importance.any() else np.ones(groups.n_blocks)


def _few_bits(values: np.ndarray) -> np.ndarray:
    """Rounded so that totals summed in another order give the same probabilities, and so the same windows."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 2**BITS) / 2**BITS, exponent).astype(np.float32))


@jax.jit
def _shares(model: HMM, params: Params, per_visit: Array, per_move: Array, minibatch: Minibatch) -> Array:
    """`(2, W)`, each window's shares of the visits of every state and of every kind of transition, summed."""
    found = windows_of(model, params, minibatch)
    visits = found.first + jnp.sum(found.transitions, axis=1)
    return jnp.stack([jnp.sum(visits * per_visit, axis=1), jnp.sum(found.transitions * per_move, axis=(1, 2))])
