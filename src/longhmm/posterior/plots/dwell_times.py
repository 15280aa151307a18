"""How long visits last, against what the model expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longhmm.posterior.plots.style import (
    MOST_PANELS,
    SOFT,
    colour,
    few_ticks,
    geometric,
    legend,
    new_figure,
    tidy,
    time_axis,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

EDGES = 31


def dwell_times(posterior: Posterior, events: pd.DataFrame, *, rate: float | None = None) -> Figure:
    """One panel per state: lengths of its visits in bins of equal logarithmic width, and the fitted geometric law.

    Visits cut short by the start or the end of a sequence are left out: how long they lasted is not known. The axis of
    counts is a square root, on which the scatter of every bar is about the same.

    Args:
        events: the table that `posterior.events(data)` returns.
        rate: samples per second.
    """
    k = posterior.model.n_states
    panels = min(k, MOST_PANELS)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = new_figure(3.7 * columns, 2.7 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    lengths = whole_visits(events, k)
    stay = np.diagonal(posterior.mean_params()["transition"])
    for state, axes in enumerate(grid):
        if state >= panels:
            axes.set_axis_off()
            continue
        longest = max(int(lengths[state].max(initial=1)), 10)
        scale, label = time_axis(float(np.median(lengths[state])) if len(lengths[state]) else longest, rate)
        edges = geometric(1, longest + 1, EDGES)
        counts = np.histogram(lengths[state], edges)[0]
        axes.stairs(counts, scale * edges, fill=True, color=colour(state), alpha=0.35)
        # P(a <= length < b) of a geometric law
        expected = len(lengths[state]) * (stay[state] ** (edges[:-1] - 1) - stay[state] ** (edges[1:] - 1))
        axes.stairs(expected, scale * edges, color=colour(state), linewidth=1.8, label="fitted")
        axes.set_xscale("log")
        few_ticks(axes.xaxis)
        axes.set_yscale("function", functions=(_root, np.square))
        axes.set_ylim(bottom=0)
        label = label.replace("time", "duration") if rate is not None else "duration (samples)"
        tidy(axes, title=f"state {state}, {len(lengths[state]):,} whole visits", x=label, y="visits")
        axes.grid(axis="y", color=SOFT, alpha=0.2)
        legend(axes)
    return figure


def whole_visits(events: pd.DataFrame, n_states: int) -> list[np.ndarray]:
    """Lengths of the visits to each state, in samples, without the first and last of every sequence."""
    sequence = events["sequence"].to_numpy()
    change = np.flatnonzero(np.diff(sequence)) + 1
    whole = np.ones(len(events), bool)
    whole[np.concatenate([[0], change, change - 1, [len(events) - 1]])] = False
    lengths, state = (events["end"] - events["start"]).to_numpy(), events["state"].to_numpy()
    return [lengths[whole & (state == each)] for each in range(n_states)]


def _root(values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(values, 0))
