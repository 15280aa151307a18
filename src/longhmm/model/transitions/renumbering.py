"""Which numbers states may have: any, or those in which a kinetic scheme looks the same."""

from __future__ import annotations

from typing import Any

import numpy as np


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

    def ordered(self, location: np.ndarray, stay: np.ndarray) -> np.ndarray:
        """The order by rising location, ties by the probability to stay, as far as states may be renumbered."""
        if self.symmetries is None:
            return np.lexsort((stay, location))
        return np.array(min(self.symmetries, key=lambda order: [(location[state], stay[state]) for state in order]))

    def matched(self, cost: np.ndarray) -> np.ndarray:
        """The order of least cost, where `cost[s, old]` is that of calling an old state s."""
        from scipy.optimize import linear_sum_assignment

        if self.symmetries is None:
            return np.asarray(linear_sum_assignment(cost)[1])
        return np.array(min(self.symmetries, key=lambda order: cost[np.arange(len(order)), list(order)].sum()))


class Unmoved(Renumbered):
    """Of transitions whose states all differ, so that each keeps its number."""

    n_states: int

    @property
    def symmetries(self) -> tuple[tuple[int, ...], ...]:  # type: ignore[override]
        return (tuple(range(self.n_states)),)

    def renumbered(self, parameter: Any, order: Any) -> Any:
        return parameter
