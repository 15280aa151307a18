"""Simulated data sets beside the data."""

import numpy as np
import pytest

from longhmm import plots
from longhmm.errors import ModelError
from report.plots.rendering import rendered


def test_simulated_data_lie_around_those_of_the_right_model(known, posterior):
    figure = plots.predictive_check(posterior, known.sequences, count=8)
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["mean", "standard deviation"]
    for axes in figure.axes[:7]:
        dots, line = axes.lines
        assert len(dots.get_xdata()) == 8
        middle, spread = np.mean(dots.get_xdata()), np.std(dots.get_xdata())
        assert abs(line.get_xdata()[0] - middle) < 6 * spread
    rendered(figure)


def test_data_that_do_not_vary_are_refused(posterior):
    with pytest.raises(ModelError, match="data that vary"):
        plots.predictive_check(posterior, np.full(60, 2.0), count=2)
