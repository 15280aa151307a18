"""Every parameter with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longhmm.posterior.labels import entry_names
from longhmm.report.plots.numbers import with_sd
from longhmm.report.plots.style import FONT_SIZE, INK, SOFT, colour, few_ticks, new_figure, plain, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

MOST_ROWS = 40  # entries of one parameter; the rest are in the summary
INTERVALS = ((0.9, 1.4), (0.5, 4.0))  # share inside, width of the line


def forest(posterior: Posterior) -> Figure:
    """Median, central 50 % and 90 % intervals of every entry, one panel per parameter.

    Transition probabilities are on a logarithmic scale and without the diagonal, which the others determine.
    """
    panels = [_entries(posterior, str(name)) for name in posterior.draws]
    panels = [panel for panel in panels if len(panel[1])]
    heights = [len(panel[1]) + 2.2 for panel in panels]
    figure = new_figure(8.5, 0.24 * sum(heights) + 0.3)
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, labels, draws, states, left_out) in zip(grid, panels, strict=True):
        rows = np.arange(len(labels))
        for share, width in INTERVALS:
            low, high = np.quantile(draws, [(1 - share) / 2, (1 + share) / 2], axis=0)
            axes.hlines(rows, low, high, color=[colour(state) for state in states], linewidth=width)
        axes.scatter(np.median(draws, axis=0), rows, s=24, color=[colour(state) for state in states], zorder=3)
        if name == "transition":
            axes.set_xscale("log")
            few_ticks(axes.xaxis)
        for row in rows:  # where intervals are too narrow to be seen, their numbers are not
            axes.annotate(
                with_sd(draws[:, row].mean(), draws[:, row].std(ddof=1)), (1.01, row), va="center",
                xycoords=axes.get_yaxis_transform(), fontsize=FONT_SIZE - 1, color=INK, annotation_clip=False,
            )  # fmt: skip
        axes.set_yticks(rows, [plain(label) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)
        tidy(axes, title=name + (f" (and {left_out} more)" if left_out else ""))
        axes.grid(axis="x", color=SOFT, alpha=0.2)
    return figure


def _entries(posterior: Posterior, name: str) -> tuple[str, list[str], np.ndarray, list[int], int]:
    """Name, labels, draws `(n, entries)`, states of the entries, and how many were left out."""
    values = posterior.draws[name]
    shape = values.shape[2:]
    flat = np.asarray(values).reshape(-1, int(np.prod(shape, dtype=int)))
    labels = entry_names(name, shape)
    index = list(np.ndindex(*shape))
    moving = flat.min(axis=0) < flat.max(axis=0)
    keep = [i for i in range(len(labels)) if moving[i] and not (name == "transition" and index[i][0] == index[i][1])]
    shown = keep[:MOST_ROWS]
    states = [index[i][0] if index[i] else 0 for i in shown]
    return name, [labels[i] for i in shown], flat[:, shown], states, len(keep) - len(shown)
