"""From starting points to the mode of the log posterior in unconstrained coordinates: the MAP estimate.

Local optima of a small part of the data (`local_optima`) are followed, the best of them by Newton steps, on ever more
of it, so that few passes over everything are needed: the mode of a sixteenth of the data is four posterior standard
deviations away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.errors import LongHMMError
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.progress import Bar
from longhmm.samplers.local_optima import STEPS, Objective, Optimum, again, ascend, inside, local_optima, objective
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.coordinates import Arrays, Flat, constrain, unconstrain
from longhmm.target.information import information_by_differences, part_of
from longhmm.target.systematic import Windows
from longhmm.target.target import full_statistics

STAGES = (1 << 15, 1 << 20)  # observations used before all of them are
STARTS = 8  # at least
NEWTON_STEPS, ROUNDS = 12, 3
SETTLED = 0.01  # squared length of the remaining Newton step, in posterior standard deviations
# A window is scaled up to all data. Where its core still depends on how it starts, it may see a transition that more
# context would rule out, and a few such windows in a million throw chains off transitions that are never seen: of
# reversed cycles, 20 million rows, about nine windows in a run; with twice the length none of 400,000 did.
BUFFER = LyapunovBuffer(repeats=2)
AS_GOOD = 10.0  # a log posterior this close to the best counts as "as good"
SMALLEST = 1e-10  # the smallest curvature, in units of its coordinates, that counts: rare transitions have small ones


class Mode(NamedTuple):
    """A mode of the log posterior, and the windows and buffer that suit it."""

    coordinates: Arrays  # unconstrained, float64
    log_posterior: float  # of the coordinates, up to the evidence
    gradient: Arrays  # of the log posterior there, exact
    information: np.ndarray  # `(P, P)`, observed information, positive definite
    decrement: float  # squared distance to the exact mode in posterior standard deviations, as the last step saw it
    passes: int  # over all data
    competing: float | None  # log posterior, relative to this one, of another mode as good as this one, or None
    windows: Windows
    buffer: int


def find_mode(
    model: HMM,
    sequences: Sequences,
    *,
    windows: Windows | None = None,
    buffer: LyapunovBuffer | FixedBuffer | None = None,
    init: Params | None = None,
    restarts: int | None = None,
    seed: int = 0,
    bar: Bar | None = None,
) -> Mode:
    """The best mode found from several starts: eight, and more where many states can be confused."""
    bar = bar or Bar(False)
    stages = [part_of(sequences, size) for size in STAGES if sequences.length > 2 * size]
    stages.append(sequences)
    tries = max(STARTS, 2 + model.n_states) if restarts is None else restarts
    optima = local_optima(model, stages[0], sequences, init, tries, seed, bar)
    policy = buffer or BUFFER
    mode: Mode | None = None
    for stage in stages:
        if mode is not None:  # those that the last stage could not tell apart
            optima = again(model, optima, stage, bar)
        coordinates = unconstrain(model, inside(model, optima[0].params, stage.length))
        length = policy.estimate(model, constrain(model, coordinates), stage).length
        shape = windows or Windows(half_width=int(np.clip(length, 10, 250)))
        mode = _newton(model, coordinates, stage, shape, length, seed, bar)
        optima[0] = Optimum(mode.log_posterior, constrain(model, mode.coordinates))
    assert mode is not None
    second = None if len(optima) < 2 else optima[1].log_posterior - optima[0].log_posterior
    return mode._replace(competing=second if second is not None and second > -AS_GOOD else None)


def _with_best_rows(model: HMM, coordinates: Params, sequences: Sequences, progress: Progress | None) -> Arrays:
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
    coordinates: Params,
    sequences: Sequences,
    windows: Windows,
    buffer: int,
    seed: int,
    bar: Bar,
) -> Mode:
    """Newton steps with exact gradients; where they do not settle, BFGS, and Newton steps again."""
    flat = Flat.like(coordinates)
    look = objective(model, flat, sequences, bar.advance)
    text = f"finding the mode of {sequences.length:,} rows"

    def curvature(vector: np.ndarray) -> np.ndarray:
        bar.phase(f"{text}, second derivatives", total=1.0, unit="matrices")
        found = _positive(information_by_differences(model, flat.unravel(vector), sequences, bar.advance))
        bar.phase(text, unit="rows")
        return found

    bar.phase(text, unit="rows")
    search = _Newton(look, curvature, flat.ravel_numpy(_with_best_rows(model, coordinates, sequences, bar.advance)))
    for _ in range(ROUNDS):
        search.run()
        if search.decrement < SETTLED:
            break
        scale = np.linalg.inv(np.linalg.cholesky(search.information)).T
        search.move(ascend(look, search.here, factor=scale, tolerance=SETTLED**0.5 / 2, steps=STEPS))
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
