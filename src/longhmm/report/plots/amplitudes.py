"""All observations as a histogram, with what the model expects of each state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longhmm.data.sequences import open_data
from longhmm.posterior.amplitudes import amplitudes as count_amplitudes
from longhmm.report.plots.style import INK, SOFT, colour, legend, new_figure, tidy, with_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

BINS = 160
DRAWS = 30
MOST_FEATURES = 4
LEGEND_UP_TO = 5  # states; with more it would hide the curves, and their colours are those of all pictures


def amplitudes(posterior: Posterior, data: Any, *, unit: str = "", log: bool = True) -> Figure:
    """Counts of all observations, what the model expects of each state, and the 90 % band of the sum of all states.

    Args:
        unit: of the observations, for the label.
        log: whether counts are on a logarithmic axis, on which rare states can be seen.
    """
    sequences = open_data(data)
    features = min(sequences.dim, MOST_FEATURES)
    figure = new_figure(5.8 if features == 1 else 10, 3.8 * -(-features // 2))
    grid = figure.subplots(-(-features // 2), min(features, 2), squeeze=False).ravel()
    for axes in grid[features:]:
        axes.set_axis_off()
    for feature, axes in enumerate(grid[:features]):
        found = count_amplitudes(posterior, sequences, feature=feature, bins=BINS, draws=DRAWS)
        axes.stairs(found.counts, found.edges, fill=True, color=SOFT, alpha=0.45, label="observed")
        middle = 0.5 * (found.edges[1:] + found.edges[:-1])
        for state, expected in enumerate(found.by_state):
            name = f"state {state}" if posterior.model.n_states <= LEGEND_UP_TO else None
            axes.plot(middle, expected, color=colour(state), linewidth=1.8, label=name)
        axes.fill_between(middle, found.lower, found.upper, color=INK, alpha=0.2, linewidth=0)
        axes.plot(middle, found.expected, color=INK, linewidth=1.0, linestyle="--", label="all states")
        if log:
            axes.set_yscale("log")
            axes.set_ylim(0.7, 2.0 * max(found.counts.max(initial=1), 1))
        tidy(axes, x=with_unit("value" if sequences.dim == 1 else f"feature {feature}", unit), y="observations")
        if feature == 0:
            legend(axes)
    return figure
