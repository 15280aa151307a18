"""Whether the chains tell the same story: their paths, and their ranks among all draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longhmm.posterior.convergence import convergence
from longhmm.posterior.labels import entry_names
from longhmm.report.plots.style import SOFT, colour, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

BINS = 20
MOST_POINTS = 500  # per chain; longer chains are drawn as running minimum and maximum


def chain_traces(posterior: Posterior, *, entries: int = 6) -> Figure:
    """The entries whose R-hat is worst: on the left every chain, on the right the ranks of its draws.

    Chains that agree have ranks spread evenly: every line keeps near the dotted one.
    """
    from scipy.stats import rankdata

    picked = _worst(posterior, entries)
    figure = new_figure(10, max(1.9 * len(picked), 2.0))
    grid = figure.subplots(max(len(picked), 1), 2, squeeze=False, width_ratios=(2.2, 1))
    n_chains, n_draws = posterior.n_chains, posterior.n_draws
    for row, (label, values) in enumerate(picked):
        left, right = grid[row]
        ranks = rankdata(values).reshape(values.shape) / values.size
        for chain in range(n_chains):
            left.plot(*_thin(values[chain]), color=colour(chain), linewidth=0.6, alpha=0.85)
            counts, edges = np.histogram(ranks[chain], BINS, range=(0, 1))
            right.stairs(counts, edges, color=colour(chain), linewidth=1.2)
        right.axhline(n_draws / BINS, color=SOFT, linestyle=":", linewidth=1)
        right.set_ylim(0, max(2.2 * n_draws / BINS, right.get_ylim()[1]))
        last = row == len(picked) - 1
        tidy(left, title=label, x="draw" if last else None)
        tidy(right, title="ranks by chain" if row == 0 else None, x="rank among all draws" if last else None)
    return figure


def _worst(posterior: Posterior, entries: int) -> list[tuple[str, np.ndarray]]:
    r_hat = convergence(posterior.draws)["r_hat"]
    found = []
    for name, values in posterior.draws.items():
        shape = values.shape[2:]
        flat = np.asarray(values).reshape(*values.shape[:2], -1)
        scores = np.nan_to_num(np.ravel(np.asarray(r_hat[name])), nan=0.0)
        for index, label in enumerate(entry_names(str(name), shape)):
            if flat[..., index].min() < flat[..., index].max():
                found.append((scores[index], label, flat[..., index]))
    found.sort(key=lambda each: -each[0])
    return [(label, values) for _, label, values in found[:entries]]


def _thin(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `MOST_POINTS` pairs of extremes, in order."""
    if len(values) <= MOST_POINTS:
        return np.arange(len(values)), values
    starts = np.linspace(0, len(values), MOST_POINTS // 2, endpoint=False).astype(int)
    ends = np.stack([np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)], axis=1)
    return np.repeat(starts, 2), ends.ravel()
