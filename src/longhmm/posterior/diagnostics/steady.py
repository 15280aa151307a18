"""Whether a number stays the same: its means by group (of times, of sequences) against their scatter within groups.

A one-way analysis of variance with weights. Each group is cut into cells; the scatter of cells within groups, and not
the model, says what chance does between groups. So correlated noise or uneven dwell times, which have checks of their
own, do not pass for a drift, and Fisher's F holds where cell means are normal.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from longhmm.data.sequences import Sequences

Shape = Literal["line", "step", "neither"]
TENTHS = 10  # groups of times
MOST_CELLS = 10  # in a sequence, or a tenth of the time
LEAST_FREEDOM = 8  # cells beyond one in each group
MOSTLY = 0.75  # of the variance is explained by what is said to describe it
JOINED = (1, 5)  # tenths to a group


class Grouping(NamedTuple):
    """Rows put into groups."""

    name: str  # "time" or "sequence"
    group: np.ndarray  # (n,)
    ordered: bool  # rows follow one another in time from group to group


def groupings(sequences: Sequences, position: np.ndarray) -> Iterator[Grouping]:
    """Rows of the data by time, tenths of each sequence's length, and, where there are several, by sequence."""
    number = np.searchsorted(sequences.offsets, position, side="right") - 1
    first, length = sequences.offsets[number], np.diff(sequences.offsets)[number]
    alone = sequences.n_sequences == 1
    yield Grouping("time", TENTHS * (position - first) // length, alone)
    if not alone:
        yield Grouping("sequence", number, False)


class Cells(NamedTuple):
    group: np.ndarray  # (C,)
    mean: np.ndarray
    weight: np.ndarray  # inverse variance, up to a factor
    last: np.ndarray  # the last row of each


class Compared(NamedTuple):
    """Groups against one another."""

    p_value: float
    size: float  # root mean square of the groups' means, beyond chance
    groups: np.ndarray  # (G,) their numbers
    means: np.ndarray  # (G,) relative to the mean of all
    cells: Cells


def steady(
    excess: np.ndarray, weight: np.ndarray, grouping: Grouping, rows: np.ndarray, least: float
) -> Compared | None:
    """Compare `sum(excess) / sum(weight)` of these rows between groups: sequences, or tenths and halves of the time,
    the more telling of the two, its p-value doubled. None where there are too few cells, each of weight `least`."""
    group, sizes = grouping.group[rows], JOINED if grouping.name == "time" else (1,)
    looks = (compared(excess, weight, group // each * each, least, MOST_CELLS * each) for each in sizes)
    found = [each for each in looks if each is not None]
    best = min(found, key=lambda each: each.p_value, default=None)
    return None if best is None else best._replace(p_value=min(1.0, len(found) * best.p_value))


def compared(
    excess: np.ndarray, weight: np.ndarray, group: np.ndarray, least: float, most_cells: int = MOST_CELLS
) -> Compared | None:
    """Compare groups as they are."""
    cells = _cells(excess, weight, group, least, most_cells)
    groups, of = np.unique(cells.group, return_inverse=True)
    between, within = len(groups) - 1, len(of) - len(groups)
    if between < 1 or within < LEAST_FREEDOM:
        return None
    total = np.bincount(of, cells.weight)
    means = np.bincount(of, cells.weight * cells.mean) / total
    means -= np.average(means, weights=total)
    scatter = np.sum(cells.weight * (cells.mean - np.average(cells.mean, weights=cells.weight) - means[of]) ** 2)
    if not scatter > 0:
        return None
    from scipy.special import fdtrc

    chance, apart = scatter / within, float(np.sum(total * means**2))
    p_value = float(fdtrc(between, within, apart / between / chance))
    size = np.sqrt(max(apart - between * chance, 0.0) / total.sum())
    return Compared(p_value, float(size), groups, means, cells)


def _cells(excess: np.ndarray, weight: np.ndarray, group: np.ndarray, least: float, most: int) -> Cells:
    """Cut each group into cells of equal weight, neighbours together; groups too light for one are left out."""
    order = np.argsort(group, kind="stable")
    excess, weight, group = excess[order], weight[order], group[order]
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
    if not len(starts):
        none = np.zeros(0)
        return Cells(none, none, none, none)
    total, sizes = np.add.reduceat(weight, starts), np.diff(np.append(starts, len(group)))
    count = np.minimum(total // least, most).astype(int)
    along = np.cumsum(weight) - weight / 2  # to the middle of each row
    along -= np.repeat(np.cumsum(total) - total, sizes)
    scale = np.divide(count, total, out=np.zeros(len(total)), where=total > 0)
    inside = np.clip(along * np.repeat(scale, sizes), 0, np.repeat(np.maximum(count - 1, 0), sizes)).astype(int)
    used = np.repeat(count > 0, sizes)
    cell = (np.repeat(np.cumsum(count) - count, sizes) + inside)[used]
    weights = np.bincount(cell, weight[used], int(count.sum()))
    ends = np.flatnonzero(np.diff(cell, append=-1))
    return Cells(group[used][ends], np.bincount(cell, excess[used]) / weights, weights, order[used][ends])


class Step(NamedTuple):
    row: int  # the last one before it
    before: float  # means, relative to the mean of all
    after: float


def shape(found: Compared) -> tuple[Shape, float, Step]:
    """How a number changes along rows in order of time: whether a straight line or a step describes it, or neither; the
    rise of the line from end to end; the step."""
    _, mean, weight, last = found.cells
    share = np.cumsum(weight) / weight.sum()
    mean, middle = mean - np.average(mean, weights=weight), share - weight / weight.sum() / 2 - 0.5
    rise = float(np.sum(weight * mean * middle) / np.sum(weight * middle**2))
    sums = np.cumsum(weight * mean)[:-1]
    by_step = sums**2 / (share * (1 - share))[:-1] / weight.sum()  # sums of squares that each explains
    at, by_line = int(np.argmax(by_step)), rise**2 * np.sum(weight * middle**2)
    before, after = sums[at] / np.sum(weight[: at + 1]), -sums[at] / np.sum(weight[at + 1 :])
    step = Step(int(last[at]), float(before), float(after))
    if max(by_line, by_step[at]) < MOSTLY * found.size**2 * weight.sum():
        return "neither", rise, step
    return ("line" if by_line > by_step[at] else "step"), rise, step


def worst(found: Iterable[tuple[float, float]], false_alarms: float, most: float) -> int | None:
    """Which of several comparisons, given as p-value and size, is beyond chance, over all of them at once, and larger
    than `most`: the largest of these."""
    pairs = list(found)
    beyond = [size if p < false_alarms / len(pairs) and size > most else 0.0 for p, size in pairs]
    return int(np.argmax(beyond)) if any(beyond) else None
