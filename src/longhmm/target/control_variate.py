"""Control variates: windows only estimate how the gradient differs from one that is known exactly. Small counts,
which hang on a few rows, are corrected by the difference between their exact and sampled versions at the centre (F26).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends import stream
from longhmm.backends.evaluate import Statistics, serves_many
from longhmm.data.sequences import Sequences
from longhmm.inference.scaling import safe_log
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.buffered import Buffered, StartDistribution, WindowTarget, stationary_start, window_estimate
from longhmm.target.coordinates import Arrays, Coordinates, add, constrain, interior, prior_gradient, unconstrain
from longhmm.target.minibatch import Minibatch
from longhmm.target.systematic import Windows
from longhmm.target.target import Estimate, exact, impossible_windows

FEW = 20.0  # expected counts below this may follow their probabilities


@dataclass(frozen=True)
class ControlVariate:
    """Buffered windows that only estimate the difference to a centre where the gradient is known exactly.

    `g(theta) = G* + sum_c w_c [g_c(theta) - g_c(theta*)] + grad log prior(theta)`, with the same blocks and weights at
    both points (N/S where all blocks are as likely) and G* the exact gradient of the log likelihood: at the centre both
    the noise and the bias of the buffer vanish.

    Args:
        centre: natural parameters `theta*`; None takes the parameters the estimator is bound at.
    """

    windows: Windows = field(default_factory=Windows)
    buffer: LyapunovBuffer | FixedBuffer = field(default_factory=LyapunovBuffer)
    start: StartDistribution = stationary_start
    centre: Params | None = None

    def bind(self, model: HMM, sequences: Sequences, params: Params) -> ControlVariateTarget:
        plain = Buffered(self.windows, self.buffer, self.start).bind(model, sequences, params)
        centre = interior(model, params if self.centre is None else self.centre)
        if plain.initial is not None:
            centre = {**centre, "initial": plain.initial}
        return ControlVariateTarget.of(plain, unconstrain(model, centre), exact(model, centre, sequences)[1].likelihood)


class CountControl(NamedTuple):
    """The control variate for expected counts of transitions."""

    counts: Any  # `(K, K)`, expected counts of all data at the centre
    elasticity: Any  # `(K, K)`, how counts follow probabilities, `d log n_ij / d log A_ij`, from 0 (not at all) to 1


def known_at(
    model: HMM, sequences: Sequences, centre: Arrays, seen: Estimate | None = None
) -> tuple[Arrays, CountControl]:
    """The exact gradient of the log likelihood at some coordinates, and which expected counts follow their
    probabilities: where some are small, by a second pass with the probabilities of these doubled. `seen` is what an
    exact pass found there, if there was one."""
    complete = model.validate(constrain(model, centre))
    _, slope, totals, *_ = seen or exact(model, complete, sequences, u=centre)[1]
    none, counts = np.zeros((model.n_states, model.n_states), np.float32), totals.transitions
    if not model.transitions.dirichlet:  # there is no single probability that a count could follow
        return slope, CountControl(none, none)
    few = (counts < FEW) & model.transitions.allowed & model.transitions.free_rows[:, None]
    if not few.any():
        return slope, CountControl(counts.astype(np.float32), none)
    doubled = np.where(few, 2.0, 1.0) * complete["transition"]
    more = {**complete, "transition": doubled / doubled.sum(axis=1, keepdims=True)}
    moved = stream.totals(model, more, sequences).transitions
    tiny = np.finfo(np.float64).tiny
    elasticity = np.where(few, np.clip(np.log2(np.maximum(moved, tiny) / np.maximum(counts, tiny)), 0.0, 1.0), 0.0)
    return slope, CountControl(counts.astype(np.float32), elasticity.astype(np.float32))


def count_score(model: HMM, coordinates: Coordinates, centre: Coordinates, difference: Array) -> Coordinates:
    """Derivative of `sum_ij (A_ij / A*_ij - 1) difference_ij log A_ij`, the first factor held constant."""
    none = jax.tree.map(jnp.zeros_like, coordinates)
    if not model.transitions.dirichlet:
        return none
    home = model.transitions.constrain(jnp.asarray(centre["transition"]))
    ratio = model.transitions.constrain(coordinates["transition"]) / jnp.where(home > 0, home, 1.0)
    weights = jax.lax.stop_gradient((ratio - 1.0) * difference)
    slope = jax.grad(lambda at: jnp.sum(weights * safe_log(model.transitions.constrain(at))))
    return {**none, "transition": slope(coordinates["transition"])}


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ControlVariateTarget(WindowTarget):
    """Control variates: `centre`, coordinates of theta*; `exact`, the gradient of the log likelihood there."""

    centre: Arrays = field(default_factory=dict)
    exact: Arrays = field(default_factory=dict)
    rare: CountControl | None = None
    counts: ClassVar[bool] = False
    apart: ClassVar[bool] = False

    @staticmethod
    def of(plain: WindowTarget, centre: Any, exact: Any, rare: CountControl | None = None) -> ControlVariateTarget:
        return ControlVariateTarget(plain.model, plain.start, plain.initial, plain.source, None, centre, exact, rare)

    def estimate(self, u: Params, minibatch: Minibatch, *, per_window: bool = False) -> Estimate:
        fixed = (self.centre, self.exact, self.rare, self.initial)
        return _controlled(self.model, self.start, dict(u), fixed, minibatch)


@partial(jax.jit, static_argnames=("start",))
def _controlled(model: HMM, start: StartDistribution, u: Coordinates, fixed: Any, minibatch: Minibatch) -> Estimate:
    centre, exact, control, initial = fixed

    def at(point: Coordinates) -> tuple[Coordinates, Coordinates, Statistics]:
        seen = window_estimate(model, start, False, point, initial, minibatch)
        return seen.likelihood, prior_gradient(model, point), seen.totals

    # One program serves both points, in one call where the backend can. Otherwise one is taken after the other: side by
    # side, branches for rare underflow would all be computed. The prior, too, is looked at from both: most of its
    # operations are then those of the likelihood, and on arrays this small every operation costs what it is to call.
    over = jax.vmap(at) if serves_many(model) else partial(jax.lax.map, at)
    points = jax.tree.map(lambda here, home: jnp.stack([here, home]), u, dict(centre))
    here = partial(jax.tree.map, lambda each: each[0])
    both, prior, totals = over(points)
    likelihood = {name: exact[name] + both[name][0] - both[name][1] for name in u}
    if control is not None:
        difference = control.elasticity * (control.counts - totals.transitions[1])
        foreseen = jax.vmap(lambda point: count_score(model, point, dict(centre), difference))(points)
        likelihood = add(likelihood, here(foreseen))
    # Counts could be negative here: none are given.
    return Estimate(add(likelihood, here(prior)), likelihood, impossible=impossible_windows(here(totals), minibatch))
