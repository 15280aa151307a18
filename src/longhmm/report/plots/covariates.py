"""What a covariate does to the states, and the baseline they are on: pictures of `posterior.along` and `.baseline`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.report.plots import style
from longhmm.report.plots.style import colour, legend, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

TITLES = {"stationary": "share of time in the long run", "dwell": "expected dwell time (samples)"}
TITLES["transition"] = "probability of moving"


def along(
    posterior: Posterior, covariate: str, covariates: Any, *, interval: float = 0.9, draws: int = 200, ax: Any = None
) -> Figure:
    """Stationary probabilities, expected dwell times, transitions and parameters of emissions along a covariate, with
    intervals, as far as they follow covariates.

    Args:
        covariate: the name of the covariate on the axis.
        covariates: a table or a mapping with one row for each point, all covariates of the model among them.
        interval: probability of the central interval.
        draws: how many draws to look at.
    """
    found = posterior.along(covariates, interval=interval, draws=draws)
    x, n_states = np.asarray(found[covariate]), posterior.model.n_states
    order = np.argsort(x)
    every = ("stationary", "dwell", "transition", *posterior.model.emission.regressions)
    names = list(filter(found.__contains__, every))
    figure, grid = style.panels(len(names), min(len(names), 3), 4.4, 3.4, ax)
    for axes, name in zip(grid, names, strict=True):
        moves = [(i, j) for i in range(n_states) for j in range(n_states) if i != j]
        several = [(state, *further) for state, *further in np.ndindex(found[name].shape[2:])]
        for each in moves if name == "transition" else several:
            mean, lower, upper = (np.asarray(found[name])[part][(order, *each)] for part in range(3))
            label = f"{each[0]} to {each[1]}" if name == "transition" else f"state {', '.join(map(str, each))}"
            axes.fill_between(x[order], lower, upper, color=colour(each[-1]), alpha=0.2, linewidth=0)
            line = "-" if len(each) == 1 else ("-", "--", ":", "-.")[each[0] % 4]
            axes.plot(x[order], mean, color=colour(each[-1]), linewidth=1.8, linestyle=line, label=label)
        if name == "dwell":
            axes.set_yscale("log")
        tidy(axes, title=TITLES.get(name, name), x=covariate)
        legend(axes)
    return figure


def baseline(
    posterior: Posterior,
    *,
    rate: float | None = None,
    unit: str = "",
    interval: float = 0.9,
    gain: bool = False,
    ax: Any = None,
) -> Figure:
    """The slow baseline of a model with a drift, as a line with its interval.

    Args:
        rate: samples per second, for an axis in seconds.
        unit: of the observations.
        interval: probability of the interval at every point.
        gain: the gain instead, of a model that has one.
    """
    found, name = posterior.baseline(interval=interval, gain=gain), "gain" if gain else "baseline"
    features = sorted(set(found["feature"]))
    figure, grid = style.panels(len(features), 1, 8.0, 2.6, ax)
    for axes, feature in zip(grid, features, strict=True):
        own = found[found["feature"] == feature]
        x = own["row"] / rate if rate else own["row"]
        axes.axhline(float(gain), color="0.6", linewidth=0.8)
        axes.fill_between(x, own["lower"], own["upper"], color=colour(feature), alpha=0.25, linewidth=0)
        axes.plot(x, own["mean"], color=colour(feature), linewidth=1.8)
        title = name if len(features) == 1 else f"{name} of feature {feature}"
        tidy(axes, title=title, x="time (s)" if rate else "row", y="" if gain else unit)
    return figure
