"""How long visits last, against what the model expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longhmm.posterior.dwell_histogram import dwell_histogram
from longhmm.report.plots.style import MOST_PANELS, SOFT, colour, few_ticks, legend, new_figure, tidy, time_axis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior


def dwell_times(posterior: Posterior, events: pd.DataFrame, *, rate: float | None = None) -> Figure:
    """One panel per state: lengths of its visits in bins of equal logarithmic width, and the fitted geometric law.

    Visits cut short by the start or the end of a sequence are left out: how long they lasted is not known. The axis of
    counts is a square root, on which the scatter of every bar is about the same.

    Args:
        events: the table that `posterior.events(data)` returns.
        rate: samples per second.
    """
    panels = min(posterior.model.n_states, MOST_PANELS)
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = new_figure(3.7 * columns, 2.7 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[panels:]:
        axes.set_axis_off()
    whole = dwell_histogram(posterior, events)
    for state, axes in enumerate(grid[:panels]):
        mine = whole[whole["state"] == state]
        counts, expected = mine["count"].to_numpy(), mine["expected"].to_numpy()
        shown = int(np.flatnonzero((counts > 0) | (expected > 0.5)).max(initial=0)) + 1
        edges = np.append(mine["lower"], mine["upper"].iloc[-1])[: shown + 1]
        scale, label = time_axis(float(edges[-1]), rate)
        # The bin (a, b] of whole numbers, drawn from a + 1/2 to b + 1/2: a logarithmic axis has no 0.
        edges = scale * (edges + 0.5)
        axes.stairs(counts[:shown], edges, fill=True, color=colour(state), alpha=0.35)
        axes.stairs(expected[:shown], edges, color=colour(state), linewidth=1.8, label="fitted")
        axes.set_xscale("log")
        axes.set_xlim(edges[0], edges[-1])
        few_ticks(axes.xaxis)
        axes.set_yscale("function", functions=(_root, np.square))
        axes.set_ylim(bottom=0)
        label = label.replace("time", "duration") if rate is not None else "duration (samples)"
        tidy(axes, title=f"state {state}, {counts.sum():,} whole visits", x=label, y="visits")
        axes.grid(axis="y", color=SOFT, alpha=0.2)
        legend(axes)
    return figure


def _root(values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(values, 0))
