"""Control variates: windows only estimate how the gradient differs from one that is known exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.evaluate import serves_many
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.coordinates import Coordinates, add, interior, prior_gradient
from longhmm.target.estimators import (
    BoundWindows,
    Buffered,
    GradientEstimate,
    StartLaw,
    WindowStatistics,
    stationary_start,
    window_estimate,
)
from longhmm.target.full_data import log_posterior_and_gradient
from longhmm.target.minibatch import Minibatch
from longhmm.target.rare import Rare, rare_score
from longhmm.target.schemes import Windows


@dataclass(frozen=True)
class ControlVariate:
    """Buffered windows that only estimate the difference to a centre where the gradient is known exactly.

    `g(theta) = G* + sum_c w_c [g_c(theta) - g_c(theta*)] + grad log prior(theta)`, with the same cells and weights at
    both points (N/S where all cells are as likely) and G* the exact gradient of the log likelihood: at the centre both
    the noise and the bias of the buffer vanish.

    Args:
        centre: natural parameters `theta*`; None takes the parameters the estimator is bound at.
    """

    windows: Windows = field(default_factory=Windows)
    buffer: LyapunovBuffer | FixedBuffer = field(default_factory=LyapunovBuffer)
    start: StartLaw = stationary_start
    centre: Mapping[str, Any] | None = None

    def bind(self, model: HMM, sequences: Sequences, params: Mapping[str, Any]) -> BoundControlVariate:
        plain = Buffered(self.windows, self.buffer, self.start).bind(model, sequences, params)
        centre = interior(model, params if self.centre is None else self.centre)
        if plain.initial is not None:
            centre = {**centre, "initial": plain.initial}
        _, gradient = log_posterior_and_gradient(model, centre, sequences, prior=False)
        with jax.enable_x64(True):
            coordinates = jax.tree.map(np.asarray, model.unconstrain({k: jnp.asarray(v) for k, v in centre.items()}))
        return BoundControlVariate(plain, coordinates, gradient)


@partial(jax.tree_util.register_dataclass, data_fields=("plain", "centre", "exact", "rare"), meta_fields=())
@dataclass(frozen=True, eq=False)
class BoundControlVariate:
    """Control-variate gradients: `centre`, coordinates of theta*; `exact`, the gradient of the log likelihood there."""

    plain: BoundWindows
    centre: dict[str, np.ndarray]
    exact: dict[str, np.ndarray]
    rare: Rare | None = None

    @property
    def draws_on_host(self) -> bool:
        """Whether windows are read from files, outside compiled code."""
        return self.plain.draws_on_host

    @property
    def shares_calls(self) -> bool:
        """Whether chains are best run together."""
        return self.plain.shares_calls

    def draw(self, key: jax.Array) -> Minibatch:
        """Windows at random, each with one over the probability of its cell as its weight."""
        return self.plain.draw(key)

    def draw_many(self, keys: jax.Array) -> Minibatch:
        """What `draw` gives for each of some keys; for windows that are read from files."""
        return self.plain.draw_many(keys)

    def estimate(
        self,
        coordinates: Mapping[str, jax.Array],
        minibatch: Minibatch,
        *,
        prior: bool = True,
        per_window: bool = False,
    ) -> GradientEstimate:
        plain = self.plain
        fixed = (self.centre, self.exact, self.rare, plain.initial)
        how = (plain.statistics, prior, per_window)
        return _controlled(plain.model, *how, dict(coordinates), *fixed, minibatch)


@partial(jax.jit, static_argnames=("statistics", "prior", "per_window"))
def _controlled(
    model: HMM,
    statistics: WindowStatistics,
    prior: bool,
    per_window: bool,
    coordinates: Coordinates,
    centre: Coordinates,
    exact: Coordinates,
    rare: Rare | None,
    initial: Any,
    minibatch: Minibatch,
) -> GradientEstimate:
    def at(point: Coordinates) -> GradientEstimate:
        return window_estimate(model, statistics, False, per_window, point, initial, minibatch)

    # One program serves both points, in one call where the backend can. Otherwise one is taken after the other: side by
    # side, branches for rare underflow would all be computed.
    over = jax.vmap(at) if serves_many(model) else partial(jax.lax.map, at)
    found = over(jax.tree.map(lambda here, home: jnp.stack([here, home]), coordinates, dict(centre)))
    gradient = {name: exact[name] + found.gradient[name][0] - found.gradient[name][1] for name in coordinates}
    if rare is not None:
        home = jax.tree.map(lambda each: each[1], found.statistics)
        seen = (home.total(minibatch.weights) if per_window else home).transitions
        gradient = add(gradient, rare_score(model, coordinates, dict(centre), rare.share * (rare.counts - seen)))
    if prior:
        gradient = add(gradient, prior_gradient(model, coordinates))
    return GradientEstimate(gradient, jax.tree.map(lambda each: each[0], found.statistics))
