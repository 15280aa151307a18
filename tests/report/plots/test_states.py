"""Pictures of states: in the recording, their observations, how long they last, where they go."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr

from longhmm import plots
from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.report.plots.style import colour
from posterior.fakes import gaussian_model, small_posterior
from report.plots.rendering import rendered


def test_segmentation_of_a_long_record_keeps_every_spike(posterior):
    length = 2_000_000
    values = np.zeros(length, np.float32)
    values[1_234_567], values[765_432] = 50.0, -40.0
    states = np.zeros(length, np.int8)
    states[1_000_000:1_000_003] = 1
    figure = plots.segmentation(
        posterior, values, rate=1e6, unit="pA", path=states, probabilities=np.eye(2, dtype=np.float32)[states]
    )
    low, high = figure.axes[0].get_ylim()
    assert low < -40 and high > 50
    (first, second) = [lines for lines in figure.axes[0].collections if hasattr(lines, "get_segments")]
    assert len(first.get_segments()) == 1  # state 0 is visited in every bin
    ((begin, level), (end, _)), *more = second.get_segments()
    assert not more and begin <= 1000.0 < end <= 1003 and level == pytest.approx(1.99, abs=0.2)
    assert figure.axes[0].get_ylabel() == "value (pA)" and figure.axes[-1].get_xlabel() == "time (ms)"
    assert len(rendered(figure)) < 200_000


def test_segmentation_of_few_samples_shows_each(known, posterior, path, laws):
    figure = plots.segmentation(posterior, known.sequences, start=100, stop=400, path=path, probabilities=laws)
    dots = {line.get_color(): line for line in figure.axes[0].lines if line.get_marker() == "."}
    values = known.sequences.rows(100, 400).values[:, 0]
    for state in (0, 1):
        np.testing.assert_allclose(dots[colour(state)].get_ydata(), values[path[100:400] == state], rtol=1e-6)
    rendered(figure)


def test_segmentation_decodes_by_itself(known, posterior):
    free = open_data(known.sequences.rows(0, 1200).values)
    figure = plots.segmentation(posterior, free, start=0, stop=400)
    dots = {line.get_color(): line for line in figure.axes[0].lines if line.get_marker() == "."}
    path = posterior.decode(free)[:400]
    assert [len(dots[colour(state)].get_ydata()) for state in (0, 1)] == np.bincount(path).tolist()
    with pytest.raises(DataError, match="path must have 1200 rows"):
        plots.segmentation(posterior, free, path=np.zeros(3, int))
    with pytest.raises(ModelError, match="one column per state"):
        plots.segmentation(posterior, free, probabilities=np.zeros((1200, 3)))


def test_amplitudes_show_counts_and_expectations(known, posterior):
    figure = plots.amplitudes(posterior, known.sequences, unit="$ furlongs $")
    axes = figure.axes[0]
    counts, edges, _ = axes.patches[0].get_data()
    values = known.sequences.rows(0, known.sequences.length).values[:, 0]
    np.testing.assert_array_equal(counts, np.histogram(values, edges)[0])
    mean = posterior.mean_params()["mean"]
    share = posterior.dwell()["stationary"].to_numpy()
    expected = len(values) * share * np.diff(ndtr(edges[:, None] - mean), axis=0)
    for state in (0, 1):
        drawn = axes.lines[state].get_ydata()
        inside = expected[:, state] > 1  # the average over draws, against the law at their mean
        np.testing.assert_allclose(drawn[inside], expected[inside, state], rtol=0.05)
    np.testing.assert_allclose(axes.lines[2].get_ydata(), axes.lines[0].get_ydata() + axes.lines[1].get_ydata())
    rendered(figure)


def test_dwell_times_show_whole_visits_and_the_geometric_law(known, posterior, path):
    two = open_data([known.sequences.rows(0, 1000).values, known.sequences.rows(1000, 3000).values])
    table = posterior.events(two, path=path)
    figure = plots.dwell_times(posterior, table, rate=1000.0)
    drawn = [[patch.get_data() for patch in axes.patches] for axes in figure.axes]
    whole = [[10 * np.diff(np.log10(part.edges)) * part.values for part in each] for each in drawn]
    assert sum(observed.sum() for observed, _ in whole) == pytest.approx(len(table) - 4)  # two are cut in each sequence
    fitted = drawn[0][1]
    # the law summed by hand over the lengths of each bin; edges lie half a sample beyond whole numbers
    stay = np.asarray(posterior.draws["transition"])[..., 0, 0].reshape(-1, 1)
    law = np.concatenate([[0], (stay ** np.arange(999) * (1 - stay)).mean(axis=0)])
    edges = np.round(fitted.edges / fitted.edges[0] / 2 - 0.5).astype(int)
    by_hand = [whole[0][0].sum() * law[a + 1 : b + 1].sum() for a, b in pairwise(edges)]
    assert edges[0] == 0
    np.testing.assert_allclose(whole[0][1], by_hand, rtol=1e-9)
    peak = int(np.argmax(fitted.values))  # it rises and falls once, whatever the widths of bins of whole samples
    assert (np.diff(fitted.values[: peak + 1]) > 0).all() and (np.diff(fitted.values[peak:-1]) < 0).all()
    rendered(figure)


def test_dwell_times_of_a_path_without_changes(posterior):
    table = posterior.events(np.zeros(50), path=np.zeros(50, int))
    rendered(plots.dwell_times(posterior, table))


@pytest.mark.parametrize("n_states", [1, 2, 5])
def test_transition_graph_has_an_arrow_for_every_move(n_states):
    from matplotlib.patches import Circle, FancyArrowPatch

    posterior = small_posterior(gaussian_model(n_states))
    patches = plots.transition_graph(posterior).axes[0].patches
    assert sum(isinstance(patch, Circle) for patch in patches) == n_states
    mean = posterior.mean_params()["transition"]
    leaving = mean * (1 - np.eye(n_states))
    drawn = (leaving / np.maximum(leaving.sum(axis=1, keepdims=True), 1e-300) >= 1e-3).sum()
    assert sum(isinstance(patch, FancyArrowPatch) for patch in patches) == drawn
