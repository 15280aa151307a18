"""Whether visits last as long as the model says: how often a level is left, by the time since it was entered. Along a
drawn path, departures minus chances, summed by age, have mean zero and a known variance if the model is right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.source import ArraySource
from longhmm.model.emissions.categorical import Categorical
from longhmm.model.formula import on_columns, transitions_into
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.model.registry import EMISSIONS
from longhmm.model.transitions.channels import Channels
from longhmm.posterior.diagnostics.bias import FALSE_ALARMS, Details
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.dwell_trend import trend
from longhmm.posterior.diagnostics.observations import emission_call
from longhmm.posterior.predict import predictions

MOST_HAZARD = 0.1  # relative error of the chance to leave: about that of the width of the dwell time's interval
# Of the false alarms: for all levels together, by ages and by trend, and for single levels.
TOGETHER, ALONE = FALSE_ALARMS * np.array([0.25, 0.5]), 0.25 * FALSE_ALARMS
BLAMED = 0.05  # p-value of a level that is named, once all levels together are beyond chance
LEAST_PHASES, MOST_PHASES = 20, 60  # of dwell times with a shape, as they are suggested
LEAST_VARIANCE = 8.0  # departures in a group of ages, about: fewer do not add up to a normal number


class DwellTimes(NamedTuple):
    """Visits to one level (a state, where states do not share levels) against the model."""

    level: int
    p_value: float  # of the hypothesis that it is left as the model says, whatever its age
    trend: float  # p-value of the hypothesis that its chance to be left neither rises nor falls with age
    size: float  # relative error of chances to leave: root of the mean square over ages, beyond chance
    interval: float  # how wide the interval of the dwell time should be, relative to what it is
    longer_than: int  # a number of samples; `seen` visits lasted longer, where the model `expected` so many
    seen: int
    expected: float
    mean: float = 1.0  # number of samples of a visit


class Exits(NamedTuple):
    """What happens after each row that has a successor."""

    level: np.ndarray
    age: np.ndarray  # 1 in the first row of a visit
    visit: np.ndarray  # its number
    left: np.ndarray  # whether the level is left
    chance: np.ndarray  # of that


def dwell_times(path: DrawnPath) -> list[DwellTimes]:
    """Judge the visits to every level that is left often enough to be judged."""
    model = path.model
    several = [exits(model, path.params, states, path.part, path.counts) for states in path.several()]
    judged = (judge(several, level) for level in range(int(model.emission.state_levels(model.n_states).max()) + 1))
    return [one for one in judged if one is not None]


def exits(model: HMM, params: Mapping[str, Any], path: np.ndarray, sequences: Sequences, counts: np.ndarray) -> Exits:
    """Departures along a path and their chances; `counts` says which rows do."""
    levels = model.emission.state_levels(model.n_states)
    level = levels[path]
    opens = np.zeros(len(path), bool)
    opens[sequences.offsets[:-1]] = True
    begins = opens.copy()
    begins[1:] |= level[1:] != level[:-1]
    rows = np.arange(len(path))
    age = rows - np.maximum.accumulate(np.where(begins, rows, 0)) + 1
    counted = np.flatnonzero(counts[:-1] & ~opens[1:])  # the last row of a sequence has no successor
    if len(np.unique(levels)) == model.n_states and not model.transitions.remembers:
        chance = _state_chances(model, params, path, sequences)[counted]
    else:
        chance = _level_chances(model, params, level, sequences)[counted]
    return Exits(level[counted], age[counted], np.cumsum(begins)[counted], begins[counted + 1], chance)


def judge(several: Sequence[Exits], level: int) -> DwellTimes | None:
    """The visits to one level, along several paths; None where there are too few to say anything."""
    from scipy.special import chdtrc

    mine = Exits(*(each[several[0].level == level] for each in several[0]))
    # Chances are scaled to the number of departures that there were: judged is how they depend on age.
    scale = mine.left.sum() / max(mine.chance.sum(), np.finfo(float).tiny)
    chance = np.minimum(scale * mine.chance, 1.0)
    variance = chance * (1.0 - chance)
    if variance.sum() < 2 * LEAST_VARIANCE:
        return None
    ages = int(mine.age.max()) + 1
    left, expected, spread = (np.bincount(mine.age, each, ages) for each in (mine.left, chance, variance))
    groups = _groups(spread)
    if groups.max() == 0:
        return None
    left_of, expected_of, spread_of = (np.bincount(groups, each) for each in (left, expected, spread))
    distance, freedom = float(np.sum((left_of - expected_of) ** 2 / spread_of)), int(groups.max())
    by_age = trend(several, level)
    # By visit: the variance of the number of departures, given the time spent, relative to what the model says.
    visits = np.unique(mine.visit, return_inverse=True)[1]
    scatter = np.sum(np.bincount(visits, mine.left - chance) ** 2) / variance.sum()
    size = max(np.sqrt(max(distance - freedom, 0.0) / left.sum()), by_age.size)
    longer = _longer(np.bincount(mine.age, minlength=ages), groups, left, expected)
    p_value = float(chdtrc(freedom, distance))
    return DwellTimes(
        level, p_value, by_age.p_value, float(size), float(np.sqrt(scatter)), *longer, len(mine.left) / left.sum()
    )


def _groups(spread: np.ndarray) -> np.ndarray:
    """`(ages + 1,)`, the group of every age: 1, 2, 3-4, 5-8 and so on, joined until each has enough variance."""
    doubling = np.ceil(np.log2(np.maximum(np.arange(len(spread)), 1))).astype(int)
    sums = np.bincount(doubling, spread)
    names, total = np.zeros(len(sums), int), 0.0
    for index in range(1, len(sums)):
        total += sums[index - 1]
        names[index] = names[index - 1] + (total >= LEAST_VARIANCE)
        total = 0.0 if total >= LEAST_VARIANCE else total
    if total + sums[-1] < LEAST_VARIANCE:  # what is left over joins the group before
        names = np.minimum(names, max(names[-1] - 1, 0))
    return names[doubling]


def _longer(at_risk: np.ndarray, groups: np.ndarray, left: np.ndarray, expected: np.ndarray) -> tuple[int, int, float]:
    """The length beyond which too many or too few visits go on, with their number and what the model expects."""
    goes_on = np.cumprod(1.0 - expected / np.maximum(at_risk, 1))
    ends = np.flatnonzero(np.diff(groups))  # the last age of each group
    seen = (at_risk - left)[ends]
    # Of the visits that were seen for so long that they could be seen to go on.
    wanted = (np.cumsum(left)[ends] + seen) * goes_on[ends]
    worst = int(np.argmax(np.abs(seen - wanted) / np.sqrt(np.maximum(wanted, 1.0))))
    return int(ends[worst]), int(seen[worst]), float(wanted[worst])


def _state_chances(model: HMM, params: Mapping[str, np.ndarray], path: np.ndarray, sequences: Sequences) -> np.ndarray:
    """`(T,)`, the chance that the state changes after each row; 0 after the last."""
    # The sum of the others keeps its digits where a state is hardly ever left.
    others = 1.0 - np.eye(model.n_states)
    if not model.transitions.varies:
        return np.asarray((params["transition"] * others).sum(axis=1)[path])
    leave = (transitions_into(model, params, sequences.rows(1, sequences.length).covariates) * others).sum(axis=2)
    return np.append(leave[np.arange(len(leave)), path[:-1]], 0.0)


def _level_chances(model: HMM, params: Mapping[str, np.ndarray], level: np.ndarray, sequences: Sequences) -> np.ndarray:
    """`(T,)`, the chance that the level changes after each row, given the levels up to it; 0 after the last."""
    levels, moves = model.emission.state_levels(model.n_states), model.transitions
    n, own = int(levels.max()) + 1, None if moves.dirichlet else moves
    chain = on_columns(HMM(model.n_states, Categorical(n), initial=params["initial"], transitions=own))
    data = Sequences(ArraySource(level), sequences.offsets, covariates=sequences.parts.get("covariates"))
    known = {moves.parameter: params[moves.parameter], "probs": np.eye(n)[levels]}
    stay, (memory, _, _) = np.zeros(len(level)), unfold(chain, chain.validate(known))
    for part in predictions(chain.resolve(data), known, data):
        before = level[np.maximum(np.arange(part.start, part.stop) - 1, 0)]
        stay[part.start : part.stop] = np.sum(memory.fold(part.states) * (levels == before[:, None]), axis=1)
    return 1.0 - np.append(stay[1:], 1.0)


def together(looks: np.ndarray) -> np.ndarray:
    """P-values over all levels at once, of p-values `(levels, looks)`: Fisher's sum of logarithms."""
    from scipy.special import chdtrc

    return np.asarray(chdtrc(2 * len(looks), -2 * np.log(np.maximum(looks, 1e-300)).sum(axis=0)))


def judge_dwell_times(model: HMM, found: list[DwellTimes], details: Details) -> list[str]:
    if not found:
        return []
    looks = np.array([[one.p_value, one.trend] for one in found])
    limits = np.where(together(looks) < TOGETHER, BLAMED, ALONE / looks.size)
    wrong = [one for one, beyond in zip(found, looks < limits, strict=True) if beyond.any() and one.size > MOST_HAZARD]
    worst = max(wrong or found, key=lambda one: one.size)
    what = f"{'state' if model.emission.untied is model.emission else 'level'} {worst.level}"
    p_value = min(1.0, 2 * min(worst.p_value, worst.trend))  # the better of two looks
    details.update(dwell=worst.size, dwell_p_value=p_value, dwell_of=what, dwell_interval=worst.interval)
    if not wrong:
        return []
    emission, levels = model.emission.untied, [*model.emission.state_levels(model.n_states).tolist(), worst.level]
    own = "emission" if EMISSIONS.name_of(type(emission)) is None else emission_call(emission.name, emission)
    tied = f"lh.HMM({model.n_states + 1}, lh.Tied({own}, levels={tuple(sorted(levels))})), in which two states share it"
    if isinstance(model.transitions, Channels):
        tied = f"{model.transitions.richer(worst.level)}, channels of one state more"
    others = f" (and those to {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    samples = "sample" if worst.longer_than == 1 else "samples"
    expected = f"{worst.expected:.1f}" if worst.expected < 10 else f"{worst.expected:,.0f}"
    other = other_durations(model, found, worst)
    return [
        f"visits to {what}{others} do not last as the model says: {worst.seen:,} go on for more than "
        f"{worst.longer_than:,} {samples}, where it expects {expected}; the interval of the dwell time "
        f"should be about {worst.interval:.1f} times as wide: try {other}{tied}"
    ]


def other_durations(model: HMM, found: list[DwellTimes], worst: DwellTimes) -> str:
    """Dwell times of another kind, as a line of Python and an option, where an ordinary chain has geometric ones."""
    moves, emission = model.transitions, model.emission
    tied = emission.untied is not emission
    if not moves.dirichlet or not moves.allowed.all() or tied or emission.couples or model.memory is not None:
        return ""
    # A shape needs a phase for every sample of most visits; brief and long ones may last for any time.
    phases = max(10 * math.ceil(max(one.mean for one in found) / 5), LEAST_PHASES)
    if phases > MOST_PHASES and worst.interval < 1:
        return ""
    kind, own = ("negative-binomial", phases) if phases <= MOST_PHASES else ("phase-type", 2)
    line = f'transitions=lh.Durations("{kind}", phases={own})'
    return f"{line}, on the command line --durations {kind}:{own}, or "
