"""Whether the observations look the way the model predicts them, one step ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.posterior.plots.style import SOFT, colour, legend, new_figure, tidy
from longhmm.posterior.residuals import Residuals, residuals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

LAGS = 30
POINTS = 400
MOST_FEATURES = 4


def residual_check(posterior: Posterior, data: Any, *, found: Residuals | None = None, most: int = 100_000) -> Figure:
    """Pseudo-residuals against normal quantiles, and their correlation from one observation to the next ones.

    If the model is right they are independent standard normals: points on the line, correlations near 0.

    Args:
        found: the residuals, if they are known already.
        most: how many observations to look at.
    """
    from scipy.special import ndtri

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
        known = np.sort(column[np.isfinite(column)])
        if len(known) < 2:
            continue
        # Even steps in the normal quantile, so that the tails are as well drawn as the middle.
        edge = float(ndtri(0.5 / len(known)))
        normal = np.linspace(edge, -edge, min(POINTS, len(known)))
        left.plot(normal, np.quantile(known, _normal_cdf(normal)), ".", color=colour(feature), markersize=4)
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


def _normal_cdf(values: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return np.asarray(ndtr(values))
