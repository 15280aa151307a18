"""Pictures show what they say: their lines are compared with the numbers, not with stored images."""

import sys

import matplotlib

from longhmm import plots
from posterior.fakes import gaussian_model, small_posterior
from report.plots.rendering import rendered


def test_pyplot_is_left_alone():
    def figures():
        return list(matplotlib.pyplot.get_fignums()) if "matplotlib.pyplot" in sys.modules else []

    before = figures()  # other tests, and other libraries, may have left some
    rendered(plots.transition_graph(small_posterior(gaussian_model())))
    assert figures() == before
