"""What a sampler sees of a model and its data: the exact log density, minibatches, and what a minibatch says.

    value, gradient = target.log_density_and_gradient(u)
    estimate = target.estimate(u, target.minibatch(key))

A policy such as `Buffered(...)` becomes a target by `bind(model, data, params)`, which fixes buffer and gap at
`params`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import Statistics
from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.target.buffer_length import BufferEstimate
from longhmm.target.coordinates import Coordinates, add, prior_gradient, score
from longhmm.target.full_data import full_statistics
from longhmm.target.minibatch import MinibatchSource


class Estimate(NamedTuple):
    """What a minibatch says at some coordinates.

    Attributes:
        gradient: estimate of the gradient of the log posterior in unconstrained coordinates, by name.
        likelihood: the same of the log likelihood, without the prior and its Jacobian.
        totals: expected statistics scaled to all data; None where the target has no `counts`.
        windows: expected statistics of every window, without weights, where they were asked for.
        impossible: how many windows had to be left out, see `impossible_windows`.
    """

    gradient: dict[str, Any]
    likelihood: dict[str, Any]
    totals: Statistics | None = None
    windows: Statistics | None = None
    impossible: Any = 0


class Target:
    """The log posterior of one model on one data set; this one passes over all data, streamed, outside compiled code.

    Attributes:
        model: default priors scaled to the data.
        sequences: the data.
        initial: the distribution of first states that the parameters brought along; None for the model's own.
        compiled: whether `minibatch` and `estimate` may run inside `jax.jit`.
        buffer: the length of its buffers; None where it has no windows, or their length is decided.
        counts: whether estimates carry expected counts.
        apart: whether the windows of a minibatch are drawn so that their spread tells the noise of the gradient.
    """

    model: HMM
    sequences: Sequences
    initial: Any
    buffer: BufferEstimate | None = None
    compiled: ClassVar[bool] = True
    counts: ClassVar[bool] = False
    apart: ClassVar[bool] = False

    @property
    def drawn_from(self) -> MinibatchSource | None:
        """Where windows come from."""
        return None

    @property
    def on_host(self) -> bool:
        """Whether minibatches are read from files, outside compiled code."""
        return False

    @property
    def together(self) -> bool:
        """Whether chains are best run together: one call serves them all."""
        return False

    def log_density_and_gradient(
        self, u: Mapping[str, Any], progress: Progress | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The exact log posterior density of the coordinates, up to the evidence, and its gradient, in float64."""
        value, gradient, _, _ = self._pass(u, progress)
        return float(value), jax.tree.map(np.asarray, gradient)

    def minibatch(self, key: jax.Array) -> Any:
        """Windows at random; None where all data are used."""
        return None

    def minibatches(self, keys: jax.Array) -> Any:
        """What `minibatch` gives for each of some keys, along a leading axis; where `on_host`."""
        return None

    def estimate(self, u: Mapping[str, Any], minibatch: Any, *, per_window: bool = False) -> Estimate:
        """The gradient of the log posterior, and what is behind it; `per_window` asks for every window's statistics."""
        _, gradient, likelihood, totals = self._pass(u)
        gradient, likelihood = jax.tree.map(np.asarray, (gradient, likelihood))
        return Estimate(gradient, likelihood, totals, None, np.zeros((), np.int32))

    def _pass(self, u: Mapping[str, Any], progress: Progress | None = None) -> tuple[Any, Any, Any, Statistics]:
        with jax.enable_x64(True):
            wide = {name: jnp.asarray(np.asarray(value), jnp.float64) for name, value in u.items()}
            params = jax.tree.map(np.asarray, _constrained(self.model, wide))
        if self.initial is not None:
            params = {**params, "initial": self.initial}
        totals = full_statistics(self.model, params, self.sequences, progress)
        with jax.enable_x64(True):
            return (*_finish(self.model, self.initial is None, wide, totals), totals)


@jax.jit
def _constrained(model: HMM, u: Coordinates) -> Coordinates:
    return dict(model.constrain(u))


@partial(jax.jit, static_argnames=("moves",))
def _finish(model: HMM, moves: bool, u: Coordinates, totals: Statistics) -> tuple[jax.Array, Coordinates, Coordinates]:
    likelihood = score(model, u, totals, initial_moves=moves)
    value = totals.log_likelihood + model.log_prior_unconstrained(u)
    return value, add(likelihood, prior_gradient(model, u)), likelihood


@partial(jax.tree_util.register_dataclass, data_fields=("model", "initial"), meta_fields=("sequences",))
@dataclass(frozen=True, eq=False)
class StreamedPosterior(Target):
    """All data at every step, read in blocks, however long they are."""

    model: HMM
    sequences: Sequences
    initial: Any = None
    compiled: ClassVar[bool] = False
    counts: ClassVar[bool] = True


class Estimator(Protocol):
    """A policy: which windows, with which buffer."""

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> Target:
        """Tie the policy to a model and data, with buffer and gap as `params` need them."""


def impossible_windows(totals: Statistics, minibatch: Any) -> jax.Array:
    """At least how many windows hold observations that no state can produce, so that they were left out.

    Every time in a core adds its window's weight to the expected first states or transitions, whatever was observed;
    only windows whose likelihood is zero add nothing.
    """
    expected, least = minibatch.weights * minibatch.layout.core, 0.5 * jnp.min(minibatch.weights)
    lost = jnp.sum(expected) - jnp.sum(totals.first) - jnp.sum(totals.transitions)
    return jnp.where(lost > least, jnp.ceil((lost - least) / jnp.max(expected)), 0.0).astype(jnp.int32)
