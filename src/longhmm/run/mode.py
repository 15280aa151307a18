"""The way up: from starting points to the mode of the log posterior in unconstrained coordinates.

Starts climb by EM on a small part of the data; the best goes on by Newton steps on ever more of it, so that few passes
over everything are needed: the mode of a sixteenth of the data is four posterior standard deviations away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.distributions import constraints

from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError, LongHMMError
from longhmm.gradients.api import constrain, unconstrain
from longhmm.gradients.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.gradients.curvature import information_by_differences, part_of
from longhmm.gradients.flat import Flat
from longhmm.gradients.full_data import full_statistics, log_posterior_and_gradient
from longhmm.gradients.schemes import Windows
from longhmm.model.hmm import HMM
from longhmm.model.initialise import in_rising_order, initial_params
from longhmm.model.support import bare
from longhmm.run.quasi_newton import Objective, ascend
from longhmm.samplers.expectation_maximisation import ExpectationMaximisation
from longhmm.samplers.whole_data import WholeData

LEVELS = (1 << 15, 1 << 20)  # observations used before all of them are
STARTS, EM_STEPS = 8, 10  # at least so many starts, all of which climb so far
FINALISTS, ASCENT_STEPS = 4, 200  # and the best of them so many steps further
SLOPE = 0.1  # at which they end: less than a tenth of a posterior sd even where the curvature is 1
NEWTON_STEPS, ROUNDS = 12, 3
SETTLED = 0.01  # squared length of the remaining Newton step, in posterior standard deviations
# A window is scaled up to all data. Where its core still depends on how it starts, it may see a transition that more
# context would rule out, and a few such windows in a million throw chains off transitions that are never seen: of
# reversed cycles, 20 million rows, about nine windows in a run; with twice the length none of 400,000 did.
BUFFER = LyapunovBuffer(repeats=2)
RIVAL = 10.0  # a log posterior this close to the best counts as "as good"
SMALLEST = 1e-10  # the smallest curvature, in units of its coordinates, that counts: rare transitions have small ones


class Mode(NamedTuple):
    """A mode of the log posterior.

    Attributes:
        coordinates: unconstrained, float64.
        log_posterior: of the coordinates, up to the evidence.
        gradient: of the log posterior there, exact.
        information: `(P, P)`, observed information, positive definite.
        decrement: squared distance to the exact mode in posterior standard deviations, as the last step saw it.
        passes: full passes over all data.
        rival: another mode as good as this one, or None: its log posterior relative to this one.
        windows, buffer: with which the information was measured.
    """

    coordinates: dict[str, np.ndarray]
    log_posterior: float
    gradient: dict[str, np.ndarray]
    information: np.ndarray
    decrement: float
    passes: int
    rival: float | None
    windows: Windows
    buffer: int


def find_mode(
    model: HMM,
    sequences: Sequences,
    *,
    windows: Windows | None = None,
    buffer: LyapunovBuffer | FixedBuffer | None = None,
    init: Mapping[str, Any] | None = None,
    restarts: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Mode:
    """Climb to the best mode found from several starts: eight, and more where many states can be confused."""
    levels = [part_of(sequences, size) for size in LEVELS if sequences.length > 2 * size]
    levels.append(sequences)
    tries = max(STARTS, 2 + model.n_states) if restarts is None else restarts
    start, rival = _climb_starts(model, levels[0], sequences, init, tries, seed)
    coordinates = unconstrain(model, _inside(model, start, levels[0].length))
    policy = buffer or BUFFER
    mode: Mode | None = None
    for level in levels:
        length = policy.estimate(model, constrain(model, coordinates), level).length
        shape = windows or Windows(half_width=int(np.clip(length, 10, 250)))
        mode = _newton(model, coordinates, level, shape, length, seed, progress if level is sequences else None)
        coordinates = mode.coordinates
    assert mode is not None
    scale = sequences.length / levels[0].length
    close = rival is not None and rival * scale > -RIVAL
    return mode._replace(rival=rival if close else None)


def _climb_starts(
    model: HMM, part: Sequences, sequences: Sequences, init: Mapping[str, Any] | None, restarts: int, seed: int
) -> tuple[dict[str, np.ndarray], float | None]:
    """The best of several climbs on a part of the data, and how far below it the best different one ended."""
    starts = [dict(init)] if init is not None else initial_params(model, sequences, restarts=restarts, seed=seed)
    data = WholeData(model, part)
    sampler = ExpectationMaximisation()

    def climb(state: Any, steps: int) -> Any:
        for _ in range(steps):
            state, info = sampler.step(jax.random.key(0), state, data)
            if info.gain < 0.01:
                break
        return state

    states = []
    for start in starts:
        try:
            states.append(climb(sampler.init(start, data), EM_STEPS))
        except ImpossibleObservationError:
            continue
    if not states:
        return starts[0], None
    states.sort(key=lambda state: -state.log_posterior)
    # Sorted again: states may have changed places on the way, which makes no other mode.
    ends = []
    for state in states[:FINALISTS]:
        value, params = _settled(model, _inside(model, state.params, part.length), part)
        ends.append((value, in_rising_order(model, params)))
    ends.sort(key=lambda end: -end[0])
    best = ends[0]
    others = [end for end in ends[1:] if not _same(best[1], end[1])]
    return best[1], (others[0][0] - best[0] if others else None)


def _settled(model: HMM, params: Mapping[str, np.ndarray], part: Sequences) -> tuple[float, dict[str, np.ndarray]]:
    """The local optimum near some parameters, and its log posterior.

    EM crawls along ridges and may rest on a saddle, where overlapping emissions say little about the states.
    """
    coordinates = unconstrain(model, params)
    flat = Flat.like(coordinates)
    look = _objective(model, flat, part, None)
    start = flat.ravel_numpy(coordinates)
    unit = np.eye(flat.size) / max(np.abs(look(start)[1]).max(), 1.0)  # the first step changes no coordinate by more
    end = ascend(look, start, factor=unit, tolerance=SLOPE * unit[0, 0], steps=ASCENT_STEPS)
    return look(end)[0], constrain(model, flat.unravel(end))


def _objective(model: HMM, flat: Flat, sequences: Sequences, progress: Progress | None) -> Objective:
    """The log posterior and its gradient as functions of flat coordinates."""

    def look(vector: np.ndarray) -> tuple[float, np.ndarray]:
        params = constrain(model, flat.unravel(vector))
        value, slope = log_posterior_and_gradient(model, params, sequences, progress=progress)
        return value, flat.ravel_numpy(slope)

    return look


def _same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether two climbs, with states in rising order, ended in the same place."""
    return all(
        np.allclose(one[name], other[name], rtol=0.1, atol=0.05 * (np.abs(one[name]).max() + 1e-12)) for name in one
    )


def _inside(model: HMM, params: Mapping[str, Any], length: int) -> dict[str, np.ndarray]:
    """Parameters moved off the boundary: no allowed transition is exactly zero, nor a probability or rate of emissions.

    What never occurs in n observations has its mode at about `1 / n` in coordinates; further out there is no curvature
    that could lead there.
    """
    complete = model.validate(params)
    counts, least = model.emission.support.is_discrete, 1.0 / (2.0 + length)
    for name, parameter in model.emission.parameters(model.n_states).items():
        if not parameter.is_free:
            continue
        assert parameter.support is not None
        support = bare(parameter.support)
        if isinstance(support, type(constraints.unit_interval)):
            complete[name] = np.clip(complete[name], least, 1.0 - least)
        elif isinstance(support, type(constraints.simplex)):
            shares = np.maximum(complete[name], least)
            complete[name] = shares / shares.sum(axis=-1, keepdims=True)
        elif counts and isinstance(support, type(constraints.positive)):
            complete[name] = np.maximum(complete[name], least)  # a rate of counts has no unit
    if model.transitions.varies:
        return complete
    allowed = model.transitions.allowed
    share = 1e-6 * allowed / allowed.sum(axis=1, keepdims=True)
    rows = model.transitions.free_rows[:, None]
    complete["transition"] = np.where(rows, (1 - 1e-6) * complete["transition"] + share, complete["transition"])
    if model.given_initial(complete) is None:
        complete.pop("initial")
    return complete


def _with_best_rows(
    model: HMM, coordinates: Mapping[str, np.ndarray], sequences: Sequences, progress: Progress | None
) -> dict[str, np.ndarray]:
    """The same coordinates with the transition rows that are best for the expected transitions of these data.

    In unconstrained coordinates that is `(n + a) / sum (n + a)`. A transition that is never seen moves with the length
    of the data, and Newton steps would follow its logarithm by at most one unit at a time.
    """
    if model.transitions.varies:
        return dict(coordinates)
    params = constrain(model, coordinates)
    counts = full_statistics(model, params, sequences, progress).transitions
    allowed = model.transitions.allowed
    weights = np.where(allowed, counts + model.transitions.concentration, 0.0)
    rows = weights / weights.sum(axis=1, keepdims=True)
    free = model.transitions.free_rows[:, None]
    return unconstrain(model, {**params, "transition": np.where(free, rows, params["transition"])})


def _newton(
    model: HMM,
    coordinates: Mapping[str, np.ndarray],
    sequences: Sequences,
    windows: Windows,
    buffer: int,
    seed: int,
    progress: Progress | None,
) -> Mode:
    """Newton steps with exact gradients; where they do not settle, BFGS, and Newton steps again."""
    flat = Flat.like(coordinates)
    look = _objective(model, flat, sequences, progress)

    def curvature(vector: np.ndarray) -> np.ndarray:
        return _positive(information_by_differences(model, flat.unravel(vector), sequences))

    search = _Newton(look, curvature, flat.ravel_numpy(_with_best_rows(model, coordinates, sequences, progress)))
    for _ in range(ROUNDS):
        search.run()
        if search.decrement < SETTLED:
            break
        scale = np.linalg.inv(np.linalg.cholesky(search.information)).T
        search.move(ascend(look, search.here, factor=scale, tolerance=SETTLED**0.5 / 2, steps=ASCENT_STEPS))
    end = flat.unravel(search.here), search.value, flat.unravel(search.slope), search.information
    return Mode(*end, search.decrement, search.passes, None, windows, buffer)


class _Newton:
    """Newton steps, each shortened until the log posterior rises."""

    def __init__(self, look: Objective, curvature: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> None:
        self.look, self.curvature, self.passes = look, curvature, 1
        self.move(start)

    def move(self, point: np.ndarray) -> None:
        """Go on from another point."""
        self.here, (self.value, self.slope) = point, self.look(point)
        self.information, self.measured_at = self.curvature(point), point
        self.decrement = np.inf
        self.passes += 1

    def run(self) -> None:
        """Until the next step is short, or too many have been taken."""
        before = np.inf
        for _ in range(NEWTON_STEPS):
            direction = np.linalg.solve(self.information, self.slope)
            self.decrement = float(self.slope @ direction)
            if self.decrement < SETTLED:
                return
            # One matrix serves as long as the steps shrink; it is measured again where it misleads.
            shrinks = self.decrement <= 0.25 * before or self.measured_at is self.here
            if shrinks and self._step(direction):
                before = self.decrement
                continue
            if self.measured_at is self.here:
                return  # nothing higher in this direction: rounding decides
            self.information, self.measured_at, before = self.curvature(self.here), self.here, np.inf

    def _step(self, direction: np.ndarray) -> bool:
        """Whether something higher was found in this direction."""
        length = 1.0
        while length > 1e-3:
            trial = self.here + length * direction
            try:
                value, slope = self.look(trial)
            except LongHMMError:  # so far that parameters overflow, or no state can have produced the data
                value = -np.inf
            self.passes += 1
            if np.isfinite(value) and value > self.value:
                self.here, self.value, self.slope = trial, value, slope
                return True
            length /= 4
        return False


def _positive(information: np.ndarray) -> np.ndarray:
    """The nearest usable curvature: eigenvalues by size, none too small, in units of each coordinate's own scale."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(information)), 1e-12))
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale[None, :])
    values = np.maximum(np.abs(values), SMALLEST)
    return (vectors * values) @ vectors.T / scale[:, None] / scale[None, :]
