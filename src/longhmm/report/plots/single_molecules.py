"""Pictures of single molecules and channels: from where to where they go, and how long they stay on a level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.posterior.kinetics import dwell_mixture, level_visits
from longhmm.posterior.names import facts_of, names_and_unit
from longhmm.report.plots import style
from longhmm.report.plots.style import INK, SOFT, colour, legend, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

GRID = 120  # points of a density along each axis
BINS = 8  # of dwell times, in a decade


def transition_density(
    posterior: Posterior, data: Any, *, events: pd.DataFrame | None = None, ax: Any = None
) -> Figure:
    """Where levels change: the mean value of a visit along x, that of the visit after it along y, as a density over all
    changes, smoothed by the scatter of such means. Crosses are changes from state to state.

    Args:
        events: the table that `posterior.events(data)` returns, if it is known already.
        ax: axes to draw in.
    """
    sequences = posterior.model.opened(data)
    table = posterior.events(sequences) if events is None else events
    first = sequences.offsets[table["sequence"].to_numpy()]
    starts, ends = first + table["start"].to_numpy(), first + table["end"].to_numpy()
    means = np.array([_mean(sequences.rows(int(a), int(b))) for a, b in zip(starts, ends, strict=True)])
    follows = table["sequence"].to_numpy()[1:] == table["sequence"].to_numpy()[:-1]
    before, after = means[:-1][follows], means[1:][follows]
    known = np.isfinite(before) & np.isfinite(after)
    before, after = before[known], after[known]
    figure, (axes,) = style.panels(1, 1, 4.6, 4.4, ax)
    if len(before):
        low, high = np.quantile(np.append(before, after), [0.005, 0.995])
        room = 0.15 * (high - low) or 0.5
        grid = np.linspace(low - room, high + room, GRID)
        width = max(0.03 * (grid[-1] - grid[0]), np.diff(grid[:2])[0])
        near = [np.exp(-0.5 * ((grid[:, None] - each) / width) ** 2) for each in (before, after)]
        axes.pcolormesh(grid, grid, near[1] @ near[0].T, cmap="Greys", shading="gouraud", rasterized=True)
        pairs = table["state"].to_numpy()[:-1][follows][known], table["state"].to_numpy()[1:][follows][known]
        for one, other in sorted(set(zip(*pairs, strict=True))):
            mine = (pairs[0] == one) & (pairs[1] == other)
            axes.plot(before[mine].mean(), after[mine].mean(), "+", color=colour(int(other)), markersize=11, mew=2.2)
        axes.plot(grid[[0, -1]], grid[[0, -1]], color=SOFT, linewidth=0.8)
    name = names_and_unit(posterior, sequences)[0][0]
    tidy(axes, title=f"{len(before):,} changes", x=f"{name} before", y=f"{name} after")
    axes.set_aspect("equal")
    return figure


def _mean(rows: Any) -> float:
    seen = rows.values[:, 0][rows.observed[:, 0]]
    return float(seen.mean()) if len(seen) else np.nan


def level_dwell_times(
    posterior: Posterior, events: pd.DataFrame, *, rate: float | None = None, ax: Any = None
) -> Figure:
    """One panel per level: how long decoded visits last, and the mixture that the transitions imply, a term for every
    state that shares the level (dashed). Visits cut short by the ends of a sequence are left out.

    Args:
        events: the table that `posterior.events(data)` returns.
        rate: samples per second; by default what the file of the run said.
        ax: axes to draw in, one for each level.
    """
    rate = facts_of(posterior).get("rate") if rate is None else rate
    levels = posterior.model.emission.state_levels(posterior.model.n_states)
    matrix, visits = posterior.mean_params()["transition"], level_visits(events, levels)
    figure, grid = style.panels(min(int(levels.max()) + 1, style.MOST_PANELS), 3, 3.7, 2.7, ax)
    for level, axes in enumerate(grid):
        lengths = visits["length"].to_numpy()[visits["level"] == level]
        longest = int(lengths.max(initial=1))
        edges = np.unique(np.floor(10 ** (np.arange(np.log10(longest) * BINS + 2) / BINS) + 1e-9).astype(int))
        edges = np.append(0, edges)
        counts = np.histogram(lengths, edges + 0.5)[0]
        terms = len(lengths) * -np.diff(dwell_mixture(matrix, levels, level, edges), axis=1)
        scale, label = style.time_axis(float(edges[-1]), rate)
        drawn = scale * (edges + 0.5)  # the bin (a, b] of whole numbers: a logarithmic axis has no 0
        axes.stairs(counts, drawn, fill=True, color=colour(level), alpha=0.35)
        axes.stairs(terms.sum(axis=0), drawn, color=colour(level), linewidth=1.8, label="implied")
        for each in terms if len(terms) > 1 else ():
            axes.stairs(np.maximum(each, 0.0), drawn, color=INK, linewidth=0.9, linestyle="--")
        axes.set(xscale="log", xlim=(drawn[0], drawn[-1]))
        style.few_ticks(axes.xaxis)
        axes.set_yscale("function", functions=(lambda count: np.sqrt(np.maximum(count, 0)), np.square))
        axes.set_ylim(bottom=0)
        label = label.replace("time", "duration") if rate is not None else "duration (samples)"
        tidy(axes, title=f"level {level}, {len(lengths):,} whole visits", x=label, y="visits")
        legend(axes)
    return figure
