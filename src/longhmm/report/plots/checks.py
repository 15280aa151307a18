"""How sure: parameters with intervals, chains, residuals, and the price of buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.errors import ModelError
from longhmm.posterior.diagnostics import bias
from longhmm.posterior.diagnostics.observations import Residuals, quantiles, residuals
from longhmm.posterior.draws import central, entry_names, entry_table
from longhmm.posterior.names import names_and_unit
from longhmm.posterior.summary import convergence
from longhmm.report.plots import style
from longhmm.report.plots.style import FONT_SIZE, INK, SOFT, colour, few_ticks, legend, plain, tidy, with_sd
from longhmm.target import buffer_report as reports

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

MOST_ROWS = 40  # entries of one parameter; the rest are in the summary
INTERVALS = ((0.9, 1.4), (0.5, 4.0))  # share inside, width of the line
BINS = 20
MOST_POINTS = 500  # per chain; longer chains are drawn as running minimum and maximum
LAGS = 30


def forest(posterior: Posterior, *, ax: Any = None) -> Figure:
    """Median, central 50 % and 90 % intervals of every entry, one panel per parameter; transition probabilities on a
    logarithmic scale and without the diagonal, which the others determine."""
    panels = []
    for name, values in posterior.draws.items():
        index = list(np.ndindex(*values.shape[2:]))
        labels, draws = entry_names(values), np.asarray(values).reshape(-1, len(index))
        keep = np.ptp(draws, axis=0) > 0
        if name == "transition":
            keep &= [a != b for a, b in index]
        if keep.any():
            panels.append((str(name), labels, draws, [(*each, 0)[0] for each in index], np.flatnonzero(keep)))
    heights = [min(len(panel[-1]), MOST_ROWS) + 2.2 for panel in panels]
    tall = (0.24 * sum(heights) + 0.3) / len(panels)
    figure, grid = style.panels(len(panels), 1, 8.5, tall, ax, height_ratios=heights)
    for axes, (name, labels, draws, states, kept) in zip(grid, panels, strict=True):
        shown, left_out = kept[:MOST_ROWS], len(kept[MOST_ROWS:])
        draws, rows, colours = draws[:, shown], np.arange(len(shown)), [colour(states[each]) for each in shown]
        for share, width in INTERVALS:
            axes.hlines(rows, *central(draws, share), color=colours, linewidth=width)
        axes.scatter(np.median(draws, axis=0), rows, s=24, color=colours, zorder=3)
        if name == "transition":
            axes.set_xscale("log")
            few_ticks(axes.xaxis)
        for row in rows:  # where intervals are too narrow to be seen, their numbers are not
            axes.annotate(
                with_sd(draws[:, row].mean(), draws[:, row].std(ddof=1)), (1.01, row), va="center",
                xycoords=axes.get_yaxis_transform(), fontsize=FONT_SIZE - 1, color=INK, annotation_clip=False,
            )  # fmt: skip
        axes.set_yticks(rows, [plain(labels[each]) for each in shown])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        tidy(axes, title=name + (f" (and {left_out} more)" if left_out else ""))
        axes.grid(axis="x", color=SOFT, alpha=0.2)
    return figure


def chain_traces(posterior: Posterior, *, entries: int = 6, ax: Any = None) -> Figure:
    """The entries whose R-hat is worst: on the left every chain, on the right the ranks of its draws, which in chains
    that agree are spread evenly: every line keeps near the dotted one."""
    from scipy.stats import rankdata

    table, r_hat = bias.entries(posterior), entry_table(convergence(posterior.draws)["r_hat"])
    worst = np.argsort([-np.nan_to_num(r_hat[name]) for name in table.names], kind="stable")[:entries]
    figure, flat = style.panels(2 * max(len(worst), 1), 2, 5, 1.9, ax, width_ratios=(2.2, 1))
    grid = list(zip(flat[::2], flat[1::2], strict=True))
    expected = posterior.n_draws / BINS
    for row, entry in enumerate(worst):
        values, (left, right) = table.values[:, :, entry], grid[row]
        ranks = rankdata(values).reshape(values.shape) / values.size
        for chain in range(posterior.n_chains):
            left.plot(*_thin(values[chain]), color=colour(chain), linewidth=0.6, alpha=0.85)
            right.stairs(*np.histogram(ranks[chain], BINS, range=(0, 1)), color=colour(chain), linewidth=1.2)
        right.axhline(expected, color=SOFT, linestyle=":", linewidth=1)
        right.set_ylim(0, max(2.2 * expected, right.get_ylim()[1]))
        last = row == len(worst) - 1
        tidy(left, title=table.names[entry], x="draw" if last else None)
        tidy(right, title="ranks by chain" if row == 0 else None, x="rank among all draws" if last else None)
    return figure


def _thin(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `MOST_POINTS` pairs of extremes, in order."""
    if len(values) <= MOST_POINTS:
        return np.arange(len(values)), values
    starts = np.linspace(0, len(values), MOST_POINTS // 2, endpoint=False).astype(int)
    ends = np.stack([np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)], axis=1)
    return np.repeat(starts, 2), ends.ravel()


def residual_check(
    posterior: Posterior, data: Any, *, found: Residuals | None = None, most: int = 100_000, ax: Any = None
) -> Figure:
    """Pseudo-residuals against normal quantiles, and their correlation from one observation to the next ones.

    If the model is right they are independent standard normals: points within the band (95 % at each point),
    correlations near 0.

    Args:
        found: the residuals, if they are known already.
        most: how many observations to look at.
        ax: two axes to draw in.
    """
    sequences = posterior.model.opened(data)
    if found is None:
        found = residuals(posterior.model, posterior.centre, sequences, most=most)
    if found is None:
        raise ModelError(f"residuals need a distribution function, and {posterior.model.emission.name} has none.")
    together = sequences.n_sequences == 1  # neighbours in the table are neighbours in time
    dim, (figure, (left, right)) = found.values.shape[1], style.panels(2, 2, 4.75, 3.7, ax)
    names = names_and_unit(posterior, sequences)[0]
    for feature in range(min(dim, style.MOST_FEATURES)):
        column = found.values[:, feature]
        if np.isfinite(column).sum() < 2:
            continue
        expected, points, band = quantiles(found, feature)
        left.fill_between(expected, *band, color=SOFT, alpha=0.35, linewidth=0)
        left.plot(expected, points, ".", color=colour(feature), markersize=4)
        if together:
            label, lags = names[feature] if dim > 1 else None, np.arange(1, LAGS + 1)
            right.plot(lags, _correlations(column), "o-", color=colour(feature), markersize=3, linewidth=1, label=label)
    left.axline((0, 0), slope=1, color=SOFT, linewidth=1)
    right.axhline(0, color=SOFT, linewidth=1)
    tidy(left, title="pseudo-residuals", x="standard normal quantile", y="residual")
    tidy(right, title="correlation between residuals", x="observations apart", y="correlation")
    right.set_ylim(min(-0.25, right.get_ylim()[0]), max(0.5, right.get_ylim()[1]))
    if not together:
        right.text(0.5, 0.5, "not drawn for many sequences", ha="center", transform=right.transAxes, color=SOFT)
    elif dim > 1:
        legend(right)
    return figure


def _correlations(column: np.ndarray) -> np.ndarray:
    """At lags 1 to `LAGS`; pairs with a missing partner do not count."""
    seen = np.isfinite(column)
    centred = np.where(seen, column - column[seen].mean(), 0.0)
    counts = [max(np.sum(seen[lag:] & seen[:-lag]), 1) for lag in range(1, LAGS + 1)]
    sums = [np.sum(centred[lag:] * centred[:-lag]) for lag in range(1, LAGS + 1)]
    return np.divide(sums, counts) / (np.sum(centred**2) / seen.sum())


def buffer_report(posterior: Posterior, data: Any, *, blocks: int = 2000, ax: Any = None) -> Figure:
    """Bias and error of buffered windows against the buffer's length, at the mode (or the posterior mean); the numbers
    are those of `lh.buffer_report`."""
    figure, (axes,) = style.panels(1, 1, 7, 4.2, ax)
    reports.buffer_report(posterior.model, posterior.centre, data, blocks=blocks).plot(ax=axes)
    axes.set_title("")
    tidy(axes, x=axes.get_xlabel(), y="error")
    legend(axes)
    # Below the rounding of a double nothing can be learnt.
    seen = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines if line.get_marker() != "None"])
    seen = seen[np.isfinite(seen)]
    axes.set_ylim(max(seen.min(initial=1.0) / 3, 1e-16), 3 * seen.max(initial=1e-15))
    axes.grid(color=SOFT, alpha=0.2)
    return figure
