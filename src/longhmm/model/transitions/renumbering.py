"""Which numbers states may have: any, or those in which a kinetic scheme looks the same."""

from __future__ import annotations

from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

MOST_PERMUTED = 7  # states up to which all their orders are looked through


class Renumbered:
    """What transitions know about the names and numbers of states."""

    symmetries: tuple[tuple[int, ...], ...] | None = None  # orders of the states that may be, where not all may
    states: tuple[str, ...] = ()  # their names, where they have any
    dt: Any = None  # seconds between rows, of transitions in continuous time
    shape: tuple[int, ...]
    single: Any = property(lambda self: self)  # those of one channel, where there are several

    def renumbered(self, parameter: Any, order: Any) -> Any:
        """The parameter where new state s is old state `order[s]`: its axes are, after leading ones, `state` and
        `to_state` first."""
        lead = parameter.ndim - len(self.shape)
        return parameter.take(order, lead).take(order, lead + 1)


def orders(model: Any) -> tuple[tuple[int, ...], ...] | None:
    """The orders in which the states of a model may be numbered, where not all may: those that its transitions allow,
    and that send states which share a level to states which share one."""
    return _orders(tuple(model.emission.state_levels(model.n_states).tolist()), model.transitions.symmetries)


@cache
def _orders(levels: tuple[int, ...], known: Any) -> Any:
    n = len(levels)
    if len(set(levels)) == n:
        return known
    possible = known or (permutations(range(n)) if n <= MOST_PERMUTED else (range(n),))
    pairs = len(set(levels))
    return tuple(tuple(each) for each in possible if len({(levels[i], levels[each[i]]) for i in range(n)}) == pairs)


def ordered(model: Any, location: np.ndarray, stay: np.ndarray) -> np.ndarray:
    """The order by rising location, ties by the probability to stay, as far as states may be renumbered."""
    possible = orders(model)
    if possible is None:
        return np.lexsort((stay, location))
    return np.array(min(possible, key=lambda order: [(location[state], stay[state]) for state in order]))


def matched(model: Any, cost: np.ndarray) -> np.ndarray:
    """The order of least cost, where `cost[s, old]` is that of calling an old state s."""
    from scipy.optimize import linear_sum_assignment

    possible = orders(model)
    if possible is None:
        return np.asarray(linear_sum_assignment(cost)[1])
    return np.array(min(possible, key=lambda order: cost[np.arange(len(order)), list(order)].sum()))


class Unmoved(Renumbered):
    """Of transitions whose states all differ, so that each keeps its number."""

    n_states: int

    @property
    def symmetries(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        return (tuple(range(self.n_states)),)

    def renumbered(self, parameter: Any, order: Any) -> Any:
        return parameter
