"""Whether transitions keep their probabilities: how often each is taken, by time and by sequence.

Along a drawn path, transitions taken minus their chances add up to sums with mean zero and a known variance.
"""

from typing import NamedTuple

import numpy as np

from longhmm.model.formula import transitions_into
from longhmm.posterior.diagnostics.bias import FALSE_ALARMS, Details
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.steady import LEAST_FREEDOM, Compared, Grouping, groupings, shape, steady, worst

MOST_CHANGE = 0.1  # standard deviation of the log odds of a transition over times or sequences: 10 % of a rate
LEAST_VARIANCE = 8.0  # transitions in a cell, about: fewer do not add up to a normal number
COVARIATE = 'give the time as a covariate, with transitions="~ time"'


class ByTime(NamedTuple):
    """One transition along one grouping."""

    entry: tuple[int, int]
    chance: float | None  # of it, where it is the same in every row
    grouping: Grouping
    rows: np.ndarray  # positions in the data of what was compared
    found: Compared


def transitions_by_time(path: DrawnPath) -> list[ByTime]:
    """Compare every transition between times and between sequences, where it is taken often enough."""
    model, states, matrix = path.model, path.states, path.params["transition"]
    rows = np.flatnonzero(path.counts[:-1] & ~path.opens[1:])  # the last row of a sequence has no successor
    varies, every = model.transitions.varies, []
    if varies:
        matrices = transitions_into(model, path.params, path.part.rows(1, path.part.length).covariates)
    for grouping in groupings(path.whole, path.position):
        for state in range(model.n_states):
            mine = rows[states[rows] == state]
            for to in range(model.n_states):
                chance = matrices[mine, state, to] if varies else np.full(len(mine), matrix[state, to])
                variance = chance * (1 - chance)
                if to == state or variance.sum() < LEAST_VARIANCE * (LEAST_FREEDOM + 2):  # cells of two groups
                    continue
                excess = (states[mine + 1] == to) - chance
                found = steady(excess, variance, grouping, mine, LEAST_VARIANCE)
                if found is not None:
                    constant = None if varies else float(matrix[state, to])
                    every.append(ByTime((state, to), constant, grouping, path.position[mine], found))
    return every


def judge_transitions(path: DrawnPath, details: Details) -> list[str]:
    every = transitions_by_time(path)
    if not every:
        return []
    pick = worst([each.found[:2] for each in every], FALSE_ALARMS, MOST_CHANGE)
    shown = every[pick if pick is not None else int(np.argmin([each.found.p_value for each in every]))]
    name = f"transition[{shown.entry[0]}, {shown.entry[1]}]"
    details.update(
        change=shown.found.size, change_p_value=shown.found.p_value, change_of=f"{name} by {shown.grouping.name}"
    )
    return [] if pick is None else [_sentence(shown, name)]


def _sentence(each: ByTime, name: str) -> str:
    found = each.found
    if each.grouping.name == "sequence":
        low, high = (int(pick(found.means)) for pick in (np.argmin, np.argmax))
        return (
            f"{name} differs from sequence to sequence: it is {_rate(each, found.means[low])} in sequence "
            f"{found.groups[low]} and {_rate(each, found.means[high])} in sequence {found.groups[high]}, "
            f"{_constant(each)}: fit the sequences one by one"
        )
    if each.grouping.ordered:
        described, rise, step = shape(found)
        if described == "step":
            return (
                f"{name} changes: it is {_rate(each, step.before)} up to about row {each.rows[step.row]:,} and "
                f"{_rate(each, step.after)} after it, {_constant(each)}: fit the two parts apart"
            )
        if described == "line":
            return (
                f"{name} changes with time: it is {_rate(each, -rise / 2)} at the beginning and "
                f"{_rate(each, rise / 2)} at the end, {_constant(each)}: {COVARIATE}"
            )
    return (
        f"{name} changes with time: in parts of it, it lies between {_rate(each, found.means.min())} and "
        f"{_rate(each, found.means.max())}, {_constant(each)}: {COVARIATE}"
    )


def _rate(each: ByTime, change: float) -> str:
    """The probability of a transition, `change` in its log odds."""
    if each.chance is None:
        return f"{max(1 + change, 0):.2g} times what the model says"
    return f"{np.clip(each.chance * (1 + change * (1 - each.chance)), 0, 1):.2g}"


def _constant(each: ByTime) -> str:
    return "beyond what its covariates explain" if each.chance is None else f"where the model has {each.chance:.2g}"
