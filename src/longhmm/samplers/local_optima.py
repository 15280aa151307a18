"""Local optima of the log posterior on a part of the data, from several starting points.

Each start takes a few steps of EM, which forgive bad starts, and BFGS from there, which does not crawl along ridges nor
rest on saddles: where emissions overlap, one observation says little about its state, and EM does both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpyro.distributions import constraints

from longhmm.backends.stream import Progress
from longhmm.data.sequences import Sequences
from longhmm.errors import ImpossibleObservationError, LongHMMError
from longhmm.model.hmm import HMM
from longhmm.model.initialise import in_rising_order, initial_params
from longhmm.model.parameters import Params
from longhmm.model.support import bare
from longhmm.progress import Bar
from longhmm.samplers.expectation_maximisation import ExpectationMaximisation
from longhmm.target.coordinates import Arrays, Flat, constrain, unconstrain
from longhmm.target.target import StreamedPosterior, log_posterior_and_gradient

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
WORSE = 1e6  # by which a point that cannot be evaluated counts as below the start
EM_STEPS, STEPS = 10, 200  # of EM and of BFGS, at most
WORK = 240  # coordinates of all starts that go on after EM, together; at least LEAST starts do
LEAST = 4
SLOPE = 0.1  # at which BFGS ends: less than a tenth of a posterior sd even where the curvature is 1
CLOSE, MOST = 30.0, 3  # optima of a part that may change places on more data: by log posterior, and how many


class Optimum(NamedTuple):
    """Natural parameters of a local optimum, states in rising order, and its log posterior in coordinates."""

    log_posterior: float
    params: Arrays


def local_optima(
    model: HMM,
    part: Sequences,
    sequences: Sequences,
    init: Params | None,
    restarts: int,
    seed: int,
    bar: Bar,
) -> list[Optimum]:
    """Different local optima of a part of the data, the best first."""
    bar.phase("finding the mode, starts", total=2.0 if init is not None else 2.0 * restarts)
    starts = [dict(init)] if init is not None else initial_params(model, sequences, restarts=restarts, seed=seed)
    target, em = StreamedPosterior(model, part), ExpectationMaximisation()
    states = []
    for start in starts:
        bar.advance(1)
        try:
            state = em.at(start, target)
            for _ in range(EM_STEPS):
                state, info = em.step(target, None, state)
                if info.gain < 0.01:
                    break
        except ImpossibleObservationError:
            continue
        states.append(state)
    if not states:
        return [Optimum(-np.inf, model.validate(starts[0]))]
    states.sort(key=lambda state: -state.log_posterior)
    size = Flat.like(unconstrain(model, inside(model, states[0].params, part.length))).size
    optima = []
    for state in states[: max(LEAST, WORK // max(size, 1))]:
        bar.advance(1)
        optima.append(settled(model, state.params, part))
    return _different(optima)


def again(model: HMM, optima: list[Optimum], stage: Sequences, bar: Bar) -> list[Optimum]:
    """The contenders on more data, the best first; the only one is left where it is."""
    optima = contenders(optima)
    if len(optima) == 1:
        return optima
    bar.phase("finding the mode, competing modes", total=len(optima))
    found = []
    for each in optima:
        found.append(settled(model, each.params, stage))
        bar.advance(1)
    return _different(found)


def contenders(optima: list[Optimum]) -> list[Optimum]:
    """Those that a part of the data cannot tell from the best."""
    return [each for each in optima if each.log_posterior > optima[0].log_posterior - CLOSE][:MOST]


def settled(model: HMM, params: Params, part: Sequences) -> Optimum:
    """The local optimum near some parameters."""
    coordinates = unconstrain(model, inside(model, params, part.length))
    flat = Flat.like(coordinates)
    look = objective(model, flat, part, None)
    start = flat.ravel_numpy(coordinates)
    unit = np.eye(flat.size) / max(np.abs(look(start)[1]).max(), 1.0)  # the first step changes no coordinate by more
    end = ascend(look, start, factor=unit, tolerance=SLOPE * unit[0, 0], steps=STEPS)
    # Sorted again: states may have changed places on the way, which makes no other mode.
    return Optimum(look(end)[0], in_rising_order(model, constrain(model, flat.unravel(end))))


def objective(model: HMM, flat: Flat, sequences: Sequences, progress: Progress | None) -> Objective:
    """The log posterior and its gradient as functions of flat coordinates."""

    def look(vector: np.ndarray) -> tuple[float, np.ndarray]:
        params = constrain(model, flat.unravel(vector))
        value, slope = log_posterior_and_gradient(model, params, sequences, progress=progress)
        return value, flat.ravel_numpy(slope)

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
    if model.transitions.varies:
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

    value, slope = objective(start)
    best = (value, start)

    def downhill(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        point = start + factor @ z
        try:
            here, gradient = (value, slope) if not z.any() else objective(point)
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
