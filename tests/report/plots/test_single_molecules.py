"""Pictures of single molecules: changes of level, and how long levels last."""

import numpy as np
import pytest

from longhmm import plots
from report.plots.rendering import rendered


def test_changes_of_level_lie_at_the_means_of_visits(posterior, known, path):
    events = posterior.events(known.sequences, path=path)
    figure = plots.transition_density(posterior, known.sequences, events=events)
    axes = figure.axes[0]
    values = known.sequences.rows(0, known.sequences.length).values[:, 0]
    means = np.array([values[a:b].mean() for a, b in zip(events["start"], events["end"], strict=True)])
    up = events["state"].to_numpy()[:-1] == 0
    crosses = sorted((line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1)
    np.testing.assert_allclose(crosses[0], [means[:-1][up].mean(), means[1:][up].mean()], rtol=1e-6)
    assert axes.get_title(loc="left") == f"{len(events) - 1:,} changes" and len(crosses) == 2
    rendered(figure)


def test_dwell_times_of_levels_are_counted(posterior, known, path):
    events = posterior.events(known.sequences, path=path)
    figure = plots.level_dwell_times(posterior, events, rate=10.0)
    inner = events.iloc[1:-1]
    for level, axes in enumerate(figure.axes):
        counted, implied = (patch.get_data().values for patch in axes.patches[:2])
        assert counted.sum() == (inner["state"] == level).sum()
        assert implied.sum() == pytest.approx(counted.sum(), rel=0.05)
    rendered(figure)
