"""What a covariate does to the states: a picture of `posterior.along`."""

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


def along(posterior: Posterior, covariate: str, covariates: Any, *, interval: float = 0.9, draws: int = 200) -> Figure:
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
    names = [*filter(found.__contains__, ("stationary", "dwell", "transition")), *posterior.model.emission.regressions]
    figure, grid = style.panels(len(names), min(len(names), 3), 4.4, 3.4)
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
