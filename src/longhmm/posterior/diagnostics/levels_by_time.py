"""Whether states keep their level and their spread: observations given their state, by time and by sequence.

Given the drawn path, residuals of the states' own distributions are independent standard normals if the model is right.
Where an emission has no distribution function, log densities (the score of each row) take their place.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from longhmm.model.drift import drift_to_try
from longhmm.model.memory import unfold
from longhmm.posterior.diagnostics.bias import FALSE_ALARMS, MOST_SANDWICH, Details
from longhmm.posterior.diagnostics.drawn_path import DrawnPath, excerpts
from longhmm.posterior.diagnostics.observations import MOST_ROWS
from longhmm.posterior.diagnostics.steady import TENTHS, Compared, Grouping, groupings, shape, steady, worst
from longhmm.posterior.draws import in_float64

MOST_DRIFT = 0.1  # of a mean by time or sequence, a standard deviation in those of single observations
FEW, MANY = 10, 50  # rows in a cell: means of normal residuals are normal, those of squares and scores need more

_log_likelihoods = jax.jit(lambda model, params, rows: model.log_likelihoods(params, rows))


class ByTime(NamedTuple):
    """One state, and feature, along one grouping."""

    state: int
    feature: int
    grouping: Grouping
    rows: np.ndarray  # positions in the data of what was compared
    found: Compared
    share: float = 1.0  # of all rows that were looked at

    @property
    def stretch(self) -> float:
        """How many times as wide the interval of a mean must be where sequences, each about one of their own, differ by
        `found.size`: their scatter about it beside that of single observations."""
        return float(np.sqrt(1 + len(self.rows) / self.share / len(self.found.groups) * self.found.size**2))

    @property
    def counts(self) -> float:
        """The size, relative to that from which it counts: between sequences also where intervals are too narrow."""
        beyond = np.sqrt((self.stretch**2 - 1) / (MOST_SANDWICH**2 - 1)) if self.grouping.name == "sequence" else 0.0
        return float(max(self.found.size / MOST_DRIFT, beyond))


def log_densities(path: DrawnPath) -> np.ndarray:
    """`(n, 1)`, the log density of each row of the excerpt given its state; NaN where anything is missing."""
    part, *_ = excerpt = excerpts(path.whole, MOST_ROWS)
    position = excerpt.position
    _, model, complete = unfold(path.model, path.params)
    rows = part.rows(0, part.length, model.lags)
    found = in_float64(_log_likelihoods, model, complete, rows)
    if found.ndim == 3:  # given the state before as well, which is not known where a piece begins
        found = found[np.arange(len(found)), path.at(np.maximum(position - 1, 0))]
        found[part.offsets[:-1]] = np.nan
    own = np.take_along_axis(found, path.remembered(position)[:, None], axis=1)
    return np.where(rows.observed.all(axis=1, keepdims=True), own, np.nan)


def by_time(path: DrawnPath, values: np.ndarray, least: int) -> Iterator[ByTime]:
    """Compare values `(n, D)` of the excerpt's rows between times and between sequences, state by state."""
    _, counts, _ = excerpt = excerpts(path.whole, MOST_ROWS)
    states = path.at(position := excerpt.position)
    for grouping in groupings(path.whole, position):
        for state in range(path.model.n_states):
            for feature, column in enumerate(values.T):
                mine = np.flatnonzero((states == state) & counts & np.isfinite(column))
                if not len(mine) or not (spread := column[mine].std()) > 0:
                    continue
                found = steady(column[mine] / spread, np.ones(len(mine)), grouping, mine, least)
                if found is not None:
                    yield ByTime(state, feature, grouping, position[mine], found, len(position) / path.whole.length)


def judge_by_time(path: DrawnPath, residuals: np.ndarray | None, details: Details) -> list[str]:
    """What times or sequences say against one level and one spread for each state, at most one sentence; `residuals`,
    `(n, D)`, are those given the states, None where the emission has no distribution function."""
    if residuals is None:
        looks = {"score": (log_densities(path), MANY, _score)}
    else:
        looks = {"drift": (residuals, FEW, _level), "spread": (residuals**2, MANY, _spread)}
    reasons: list[str] = []
    for name, (values, least, sentence) in looks.items():
        every = list(by_time(path, values, least))
        sizes = [each.found.size / MOST_DRIFT if residuals is None else each.counts for each in every]
        pairs = zip((each.found.p_value for each in every), sizes, strict=True)
        pick = worst(pairs, FALSE_ALARMS / len(looks), 1.0)
        if every:
            shown = every[pick if pick is not None else int(np.argmin([each.found.p_value for each in every]))]
            of = f"state {shown.state} by {shown.grouping.name}"
            details.update({name: shown.found.size, f"{name}_p_value": shown.found.p_value, f"{name}_of": of})
        # A level that moves changes the spread as well: the first reason is enough.
        if pick is not None and not reasons:
            of = f" of feature {every[pick].feature}" if values.shape[1] > 1 else ""
            what, remedy = f"observations{of} in state {every[pick].state}", drift_to_try(path.model.emission)
            reasons.append(sentence(every[pick], what, remedy))
    return reasons


def _level(each: ByTime, what: str, remedy: str) -> str:
    found, by_sequence = each.found, each.grouping.name == "sequence"
    if by_sequence:
        far = int(np.argmax(np.abs(found.means)))
        return (
            f"{what} differ from sequence to sequence by {found.size:.2f} sd (root mean square; sequence "
            f"{found.groups[far]} by {found.means[far]:+.2f}), where the model has one level for all, so that the "
            f"interval of its level should be about {each.stretch:.1f} times as wide: subtract each sequence's own "
            "offset, or fit the sequences one by one"
        )
    if each.grouping.ordered:
        described, rise, step = shape(found)
        if described == "step":
            return (
                f"{what} jump by {step.after - step.before:+.2f} sd about row {each.rows[step.row]:,}, where the model "
                "has one level for all: fit the rows before and after it apart"
            )
        if described == "line":
            return (
                f"{what} drift by {rise:+.2f} sd from the first row to the last, where the model has one level for "
                f"all: {remedy}"
            )
    low, high = found.means.min(), found.means.max()
    return (
        f"{what} wander: in parts of the time their means lie between {low:+.2f} and {high:+.2f} sd of the level, "
        f"where the model has one level for all: {remedy}"
    )


def _spread(each: ByTime, what: str, remedy: str) -> str:
    """Squared residuals, in units of their standard deviation, which is about sqrt(2) times that of the noise."""
    low, high = np.sqrt(np.maximum(1 + np.sqrt(2) * np.array([each.found.means.min(), each.found.means.max()]), 0))
    where = "from sequence to sequence" if each.grouping.name == "sequence" else "in parts of the time"
    return (
        f"{what} spread differently {where}: from {low:.2f} to {high:.2f} times the model's sd, where it has one for "
        "all: fit parts of the data apart"
    )


def _score(each: ByTime, what: str, remedy: str) -> str:
    least = int(np.argmin(each.found.means))
    group = each.found.groups[least]
    where = (
        f"in sequence {group}" if each.grouping.name == "sequence" else f"after {100 * group // TENTHS} % of the time"
    )
    return (
        f"{what} are less probable {where} than elsewhere, by {-each.found.means[least]:.2f} sd "
        "of their log densities, where the model has one distribution for all: fit parts of the data apart"
    )
