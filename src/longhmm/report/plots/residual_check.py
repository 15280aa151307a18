"""Whether the observations look the way the model predicts them, one step ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.posterior.quantile_plot import quantiles
from longhmm.posterior.residuals import Residuals, residuals
from longhmm.report.plots.style import SOFT, colour, legend, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

LAGS = 30
MOST_FEATURES = 4


def residual_check(posterior: Posterior, data: Any, *, found: Residuals | None = None, most: int = 100_000) -> Figure:
    """Pseudo-residuals against normal quantiles, and their correlation from one observation to the next ones.

    If the model is right they are independent standard normals: points within the band (95 % at each point),
    correlations near 0.

    Args:
        found: the residuals, if they are known already.
        most: how many observations to look at.
    """
    sequences = open_data(data)
    if found is None:
        params = posterior.mean_params() if posterior.mode is None else posterior.mode
        found = residuals(posterior.model, params, sequences, most=most)
    if found is None:
        raise ModelError(
            f"residuals need the distribution function of the emission, and {posterior.model.emission.name} has none."
        )
    together = sequences.n_sequences == 1  # neighbours in the table are neighbours in time
    figure = new_figure(9.5, 3.7)
    left, right = figure.subplots(1, 2)
    for feature in range(min(found.values.shape[1], MOST_FEATURES)):
        column = found.values[:, feature]
        if np.isfinite(column).sum() < 2:
            continue
        points = quantiles(found, feature)
        left.fill_between(points.expected, points.lower, points.upper, color=SOFT, alpha=0.35, linewidth=0)
        left.plot(points.expected, points.found, ".", color=colour(feature), markersize=4)
        lags = np.arange(1, LAGS + 1)
        if together:
            label = f"feature {feature}" if found.values.shape[1] > 1 else None
            right.plot(lags, _correlations(column), "o-", color=colour(feature), markersize=3, linewidth=1, label=label)
    left.axline((0, 0), slope=1, color=SOFT, linewidth=1)
    right.axhline(0, color=SOFT, linewidth=1)
    tidy(left, title="pseudo-residuals", x="standard normal quantile", y="residual")
    tidy(right, title="correlation between residuals", x="observations apart", y="correlation")
    right.set_ylim(min(-0.25, right.get_ylim()[0]), max(0.5, right.get_ylim()[1]))
    if together and found.values.shape[1] > 1:
        legend(right)
    if not together:
        right.text(0.5, 0.5, "not drawn for many sequences", ha="center", transform=right.transAxes, color=SOFT)
    return figure


def _correlations(column: np.ndarray) -> np.ndarray:
    """At lags 1 to `LAGS`; pairs with a missing partner do not count."""
    centred = column - np.nanmean(column)
    variance = np.nanmean(centred**2)
    found = []
    for lag in range(1, LAGS + 1):
        products = centred[lag:] * centred[:-lag]
        seen = np.isfinite(products)
        found.append(products[seen].mean() / variance if seen.any() else np.nan)
    return np.array(found)
