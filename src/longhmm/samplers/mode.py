"""From starting points to the mode of the log posterior in unconstrained coordinates: the MAP estimate.

Each start takes a few steps of EM on a part of the data, which forgive bad starts, and BFGS from there, which does not
crawl along ridges nor rest on saddles. The best optima are followed, by Newton steps, on ever more of the data, so that
few passes over everything are needed: the mode of a sixteenth of it is four posterior standard deviations away.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpyro.distributions import constraints

from longhmm.backends.stream import Progress, totals
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError, LongHMMError
from longhmm.model.drift import on_baseline, still
from longhmm.model.hmm import HMM
from longhmm.model.initialise import in_rising_order, initial_params
from longhmm.model.parameters import Params
from longhmm.model.support import bare
from longhmm.progress import Bar
from longhmm.samplers.arrangement import rearranged
from longhmm.samplers.expectation_maximisation import ExpectationMaximisation
from longhmm.target.buffer_length import FixedBuffer, LyapunovBuffer
from longhmm.target.coordinates import Arrays, Flat, constrain, unconstrain
from longhmm.target.information import information_by_differences, part_of
from longhmm.target.systematic import Windows
from longhmm.target.target import Estimate, StreamedPosterior, exact

Objective = Callable[[np.ndarray], tuple[Any, ...]]  # value and gradient, and what else the pass found
Curvature = Callable[[np.ndarray, Any], np.ndarray]
WORSE = 1e6  # by which a point that cannot be evaluated counts as below the start
EM_STEPS, STEPS = 10, 200  # of EM and of BFGS, at most
WORK, LEAST = 240, 4  # coordinates of all starts that go on after EM, together; least starts that do, which may agree
SLOPE = 0.1  # at which BFGS ends: less than a tenth of a posterior sd even where the curvature is 1
CLOSE, MOST = 30.0, 3  # optima of a part that may change places on more data: by log posterior, and how many
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
    information: np.ndarray  # `(P, P)`, observed information, positive definite
    decrement: float  # squared distance to the exact mode in posterior standard deviations, as the last step saw it
    passes: int  # over all data
    seen: Estimate  # what the last of them found, at the mode
    competing: float | None = None  # log posterior, relative to this one, of another mode as good as this one
    windows: Windows = Windows()
    buffer: int = 0


def find_mode(
    model: HMM,
    sequences: Sequences,
    *,
    windows: Windows | None = None,
    buffer: LyapunovBuffer | FixedBuffer | None = None,
    init: Params | None = None,
    seed: int = 0,
    bar: Bar | None = None,
    near: tuple[Arrays, np.ndarray] | None = None,
) -> Mode:
    """The best mode found from several starts: eight, and more where many states can be confused; or the one next to
    the coordinates `near`, at which the curvature is about known."""
    bar, guess = bar or Bar(False), None if near is None else near[1]
    stages = [*(part_of(sequences, size) for size in STAGES if near is None and sequences.length > 2 * size), sequences]
    simple = still(model) if init is None and near is None else model  # a baseline is found once all else is in place
    if near is not None:
        optima = [Optimum(-np.inf, constrain(model, near[0]))]
    else:
        optima = local_optima(simple, stages[0], sequences, init, max(STARTS, 2 + model.n_states), seed, bar)
    optima = optima if simple is model else again(model, on_baseline(model, optima), stages[0], bar)
    mode: Mode | None = None
    for stage in stages:
        if mode is not None:  # those that the last stage could not tell apart
            optima = again(model, optima, stage, bar)
        coordinates = unconstrain(model, inside(model, optima[0].params, stage.length))
        if stage is sequences:
            length = (buffer or BUFFER).estimate(model, constrain(model, coordinates), stage).length
        mode = _newton(model, coordinates, stage, bar, guess)
        optima[0] = Optimum(mode.log_posterior, constrain(model, mode.coordinates))
    assert mode is not None
    second = optima[1].log_posterior - optima[0].log_posterior if len(optima) > 1 else -np.inf
    shape = windows or Windows(half_width=int(np.clip(length, 10, 250)))
    return mode._replace(competing=second if second > -AS_GOOD else None, windows=shape, buffer=length)


def _with_best_rows(model: HMM, coordinates: Params, sequences: Sequences, progress: Progress | None) -> Arrays:
    """The same coordinates with the best rows for the expected transitions of these data, `(n + a) / sum (n + a)`.
    Newton steps would follow the logarithm of a transition that is never seen by at most one unit at a time."""
    if not model.transitions.dirichlet:
        return dict(coordinates)
    params = constrain(model, coordinates)
    counts = totals(model, params, sequences, progress=progress).transitions
    weights = np.where(model.transitions.allowed, counts + model.transitions.concentration, 0.0)
    rows = weights / weights.sum(axis=1, keepdims=True)
    free = model.transitions.free_rows[:, None]
    return unconstrain(model, {**params, "transition": np.where(free, rows, params["transition"])})


def _newton(model: HMM, start: Params, sequences: Sequences, bar: Bar, guess: Any = None) -> Mode:
    """Newton steps with exact gradients, at first with a guess of the curvature; else BFGS, and Newton steps again."""
    flat = Flat.like(start)
    look = objective(model, flat, sequences, bar.advance)
    text = f"finding the mode of {sequences.length:,} rows"

    def curvature(vector: np.ndarray, seen: Estimate) -> np.ndarray:
        bar.phase(f"{text}, second derivatives", total=1.0, unit="matrices")
        found = _positive(information_by_differences(model, flat.unravel(vector), sequences, seen.totals, bar.advance))
        bar.phase(text, unit="rows")
        return found

    bar.phase(text, unit="rows")
    best = start if guess is not None else _with_best_rows(model, start, sequences, bar.advance)
    search = _Newton(look, curvature, flat.ravel_numpy(best), guess)
    for _ in range(ROUNDS):
        search.run()
        if search.decrement < SETTLED:
            break
        scale = np.linalg.inv(np.linalg.cholesky(search.information)).T
        search.move(ascend(look, search.here, factor=scale, tolerance=SETTLED**0.5 / 2, steps=STEPS))
    information = curvature(search.here, search.seen) if search.information is guess else search.information
    return Mode(flat.unravel(search.here), search.value, information, search.decrement, search.passes, search.seen)


class _Newton:
    """Newton steps, each shortened until the log posterior rises."""

    def __init__(self, look: Objective, curvature: Curvature, start: np.ndarray, guess: Any = None) -> None:
        self.look, self.curvature, self.passes = look, curvature, 1
        self.move(start, guess)

    def move(self, point: np.ndarray, guess: Any = None) -> None:
        self.here, (self.value, self.slope, self.seen) = point, self.look(point)
        self.information: np.ndarray = self.curvature(point, self.seen) if guess is None else guess
        self.measured_at: np.ndarray | None = point if guess is None else None
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
            self.information, self.measured_at, before = self.curvature(self.here, self.seen), self.here, np.inf

    def _step(self, direction: np.ndarray) -> bool:
        """Whether something higher was found in this direction."""
        length = 1.0
        while length > 1e-3:
            trial = self.here + length * direction
            try:
                value, slope, seen = self.look(trial)
            except LongHMMError:  # so far that parameters overflow, or no state can have produced the data
                value = -np.inf
            self.passes += 1
            if np.isfinite(value) and value > self.value:
                self.here, self.value, self.slope, self.seen = trial, value, slope, seen
                return True
            length /= 4
        return False


def _positive(information: np.ndarray) -> np.ndarray:
    """The nearest usable curvature: eigenvalues by size, none too small, in units of each coordinate's own scale."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(information)), 1e-12))
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale[None, :])
    values = np.maximum(np.abs(values), SMALLEST)
    return (vectors * values) @ vectors.T / scale[:, None] / scale[None, :]


# Local optima of a part of the data -----------------------------------------------------------------------------------


class Optimum(NamedTuple):
    """Natural parameters of a local optimum, states in rising order, and its log posterior in coordinates."""

    log_posterior: float
    params: Arrays


def local_optima(
    model: HMM, part: Sequences, sequences: Sequences, init: Params | None, restarts: int, seed: int, bar: Bar
) -> list[Optimum]:
    """Different local optima of a part of the data, the best first."""
    bar.phase("finding the mode, starts", total=2.0 if init is not None else 2.0 * restarts)
    starts = [dict(init)] if init is not None else initial_params(model, sequences, restarts=restarts, seed=seed)
    target, em, states = StreamedPosterior(model, part), ExpectationMaximisation(), []
    for start in starts:
        bar.advance(1)
        try:
            state = em.at(start, target)
            for _ in range(EM_STEPS):
                state, info = em.step(target, None, state)
                if info.stats["gain"] < 0.01:
                    break
        except ImpossibleObservationError:
            continue
        states.append(state)
    if not states:
        return [Optimum(-np.inf, model.validate(starts[0]))]
    states.sort(key=lambda state: -state.log_posterior)
    before, size = -np.inf, Flat.like(unconstrain(model, inside(model, states[0].params, part.length))).size
    found = _followed(model, [state.params for state in states[: max(LEAST, WORK // max(size, 1))]], part, bar)
    while init is None and found[0].log_posterior > before and (other := rearranged(model, found[0].params, part)):
        before = found[0].log_posterior
        found = _different([*found, *local_optima(model, part, part, other, 1, seed, bar)])
    return found


def again(model: HMM, optima: list[Optimum], stage: Sequences, bar: Bar) -> list[Optimum]:
    """The contenders on more data, the best first; the only one is left where it is."""
    optima = contenders(optima)
    if len(optima) == 1:
        return optima
    bar.phase("finding the mode, competing modes", total=len(optima))
    return _followed(model, [each.params for each in optima], stage, bar)


def _followed(model: HMM, starts: list[Arrays], part: Sequences, bar: Bar) -> list[Optimum]:
    """Where starts lead, the best first; where the first few end in one place, no others are followed."""
    found: list[Optimum] = []
    for params in starts:
        found.append(settled(model, params, part))
        bar.advance(1)
        if len(found) == LEAST and len(_different(found)) == 1:
            break
    return _different(found)


def contenders(optima: list[Optimum]) -> list[Optimum]:
    """Those that a part of the data cannot tell from the best."""
    return [each for each in optima if each.log_posterior > optima[0].log_posterior - CLOSE][:MOST]


def settled(model: HMM, params: Params, part: Sequences) -> Optimum:
    """The local optimum near some parameters."""
    coordinates = unconstrain(model, inside(model, params, part.length))
    flat = Flat.like(coordinates)
    look, start = objective(model, flat, part, None), flat.ravel_numpy(coordinates)
    unit = np.eye(flat.size) / max(np.abs(look(start)[1]).max(), 1.0)  # the first step changes no coordinate by more
    end = ascend(look, start, factor=unit, tolerance=SLOPE * unit[0, 0], steps=STEPS)
    # Sorted again: states may have changed places on the way, which makes no other mode.
    return Optimum(look(end)[0], in_rising_order(model, constrain(model, flat.unravel(end))))


def objective(model: HMM, flat: Flat, sequences: Sequences, progress: Progress | None) -> Objective:
    """The log posterior and its gradient as functions of flat coordinates."""

    def look(vector: np.ndarray) -> tuple[float, np.ndarray, Estimate]:
        u = flat.unravel(vector)
        value, found = exact(model, model.validate(constrain(model, u)), sequences, u=u, progress=progress)
        return value, flat.ravel_numpy(found.gradient), found

    return look


def _different(optima: list[Optimum]) -> list[Optimum]:
    """The best of those in the same place (their states are in rising order), the best first."""

    def same(one: Arrays, other: Arrays) -> bool:
        scales = {name: np.abs(one[name]).max() + 1e-12 for name in one}
        return all(np.allclose(one[name], other[name], rtol=0.1, atol=0.05 * scales[name]) for name in one)

    found: list[Optimum] = []
    for each in sorted(optima, key=lambda one: -one.log_posterior):
        if not any(same(each.params, other.params) for other in found):
            found.append(each)
    return found


def inside(model: HMM, params: Params, length: int) -> Arrays:
    """Parameters moved off the boundary: what never occurs in n observations has its mode at about `1 / n`.

    Further out there is no curvature that could lead there.
    """
    complete = model.validate(params)
    counts, least = model.emission.support.is_discrete, 1.0 / (2.0 + length)
    for name, parameter in model.emission.parameters(model.n_states).items():
        if not parameter.is_free or parameter.support is None:
            continue
        support = bare(parameter.support)
        if isinstance(support, type(constraints.unit_interval)):
            complete[name] = np.clip(complete[name], least, 1.0 - least)
        elif isinstance(support, type(constraints.simplex)):
            shares = np.maximum(complete[name], least)
            complete[name] = shares / shares.sum(axis=-1, keepdims=True)
        elif counts and isinstance(support, type(constraints.positive)):
            complete[name] = np.maximum(complete[name], least)  # a rate of counts has no unit
    if not model.transitions.dirichlet:
        return complete
    allowed = model.transitions.allowed
    share = 1e-6 * allowed / allowed.sum(axis=1, keepdims=True)
    rows = model.transitions.free_rows[:, None]
    complete["transition"] = np.where(rows, (1 - 1e-6) * complete["transition"] + share, complete["transition"])
    if model.given_initial(complete) is None:
        complete.pop("initial")
    return complete


def ascend(objective: Objective, start: np.ndarray, *, factor: np.ndarray, tolerance: float, steps: int) -> np.ndarray:
    """A point near a local maximum, at least as high as the start, by BFGS.

    The search runs in z of `point = start + factor z`, where `factor factor^T` guesses the inverse curvature, and ends
    where no entry of the gradient in z is above `tolerance`. There is no objective where it raises a `LongHMMError`.
    """
    from scipy.optimize import minimize

    value, slope = objective(start)[:2]
    best = (value, start)

    def downhill(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        point = start + factor @ z
        try:
            here, gradient = (value, slope) if not z.any() else objective(point)[:2]
        except LongHMMError:  # parameters overflow, or no state can have produced the data
            here, gradient = np.nan, np.zeros_like(z)
        if not (np.isfinite(here) and np.isfinite(gradient).all()):
            return WORSE, np.zeros_like(z)
        if here > best[0]:
            best = here, point
        return value - here, -factor.T @ gradient

    options = {"gtol": tolerance, "maxiter": steps}
    minimize(downhill, np.zeros_like(start), jac=True, method="BFGS", options=options)
    return best[1]
