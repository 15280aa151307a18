"""Pictures of how sure results are: intervals, chains, residuals, buffers."""

import numpy as np
import pytest

from longhmm import plots
from longhmm.data.sequences import open_data
from report.plots.rendering import rendered


def test_forest_holds_the_quantiles(posterior):
    figure = plots.forest(posterior)
    wide = figure.axes[1].collections[0].get_segments()
    draws = np.asarray(posterior.draws["mean"]).reshape(-1, 2)
    np.testing.assert_allclose([each[:, 0] for each in wide], np.quantile(draws, [0.05, 0.95], axis=0).T)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["transition[0, 1]", "transition[1, 0]"]
    rendered(figure)


def test_chain_traces_put_the_worst_first(known):
    natural = known.draw()
    natural["mean"][0, :, 1] += 1.0  # one chain apart
    figure = plots.chain_traces(known.posterior(natural), entries=2)
    assert figure.axes[0].get_title(loc="left") == "mean[1]"
    ranks = [patch.get_data().values for patch in figure.axes[1].patches]
    assert ranks[0][:10].sum() == 0 and ranks[0].sum() == 500  # all its ranks are high
    rendered(figure)


def test_residuals_of_the_right_model_lie_on_the_line(known, posterior):
    figure = plots.residual_check(posterior, known.sequences)
    points = figure.axes[0].lines[0]
    inner = np.abs(points.get_xdata()) < 2
    assert np.abs(points.get_ydata() - points.get_xdata())[inner].max() < 0.2
    correlations = figure.axes[1].lines[0].get_ydata()
    assert np.abs(correlations).max() < 5 / np.sqrt(known.sequences.length)
    rendered(figure)


@pytest.mark.slow  # compiles the windows of every buffer length
def test_buffer_report_is_drawn(known, posterior):
    free = open_data(known.sequences.rows(0, 1000).values)
    figure = plots.buffer_report(posterior, free, blocks=40)
    assert figure.axes[0].get_yscale() == "log" and figure.axes[0].get_ylim()[0] >= 1e-16
    rendered(figure)
