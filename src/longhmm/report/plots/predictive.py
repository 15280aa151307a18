"""Simulated data sets beside the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longhmm.errors import ModelError
from longhmm.posterior.diagnostics.predictive_data import predictive_statistics
from longhmm.posterior.names import names_and_unit
from longhmm.report.plots import style
from longhmm.report.plots.style import SOFT, colour, number, panels, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

MOST_FEATURES = 4  # with a row of statistics each


def predictive_check(posterior: Posterior, data: Any, *, count: int = 20, seed: int = 0, ax: Any = None) -> Figure:
    """A few statistics of data sets simulated at draws of the posterior (dots), and those of the data (a line).

    Where the line lies beyond all dots, the model does not make data of this kind.

    Args:
        count: how many data sets to simulate.
        ax: axes to draw in, one for each statistic.
    """
    found = predictive_statistics(posterior, data, count=count, seed=seed)
    several = len({each.feature for each in found} - {-1}) > 1
    found, names = [each for each in found if each.feature < MOST_FEATURES], names_and_unit(posterior)[0]
    if all(each.feature < 0 for each in found):
        raise ModelError("predictive_check needs data that vary, got the same value everywhere.")
    figure, grid = panels(len(found), 4, 2.4, 1.1, ax)
    for axes, each in zip(grid, found, strict=True):
        heights = [(index * 7 % len(each.simulated)) / len(each.simulated) for index in range(len(each.simulated))]
        axes.plot(each.simulated, heights, "o", color=SOFT, markersize=3)
        axes.axvline(each.observed, color=colour(1), linewidth=1.8)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=3)
        tidy(axes, title=f"{each.name}, {names[each.feature]}" if several and each.feature >= 0 else each.name)
        axes.set_title(axes.get_title(loc="left"), loc="left", fontsize=style.FONT_SIZE - 1)
        axes.set_gid(f"{each.name}: {number(each.observed)}")
    return figure
