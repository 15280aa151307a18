"""Pictures show what they say: their lines are compared with the numbers, not with stored images."""

import io
import sys
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from scipy.special import ndtr

from longhmm import plots
from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.report.plots.style import PALETTE, colour, few_ticks, new_figure, plain, time_axis
from posterior.fakes import gaussian_model, known_states, small_posterior

DARK = "#14171b"  # the ground of the page at night


@pytest.fixture(scope="module")
def known():
    return known_states(3000)


@pytest.fixture(scope="module")
def posterior(known):
    return known.posterior()


@pytest.fixture(scope="module")
def path(known):
    return known.sequences.rows(0, known.sequences.length).states


@pytest.fixture(scope="module")
def laws(path):
    return np.eye(2, dtype=np.float32)[path]


def rendered(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")
    return file.getvalue()


def luminance(hue: str) -> float:
    parts = np.array([int(hue[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_seen_by_day_and_by_night():
    assert all(contrast(each, ground) >= 3.0 for each in PALETTE for ground in ("#ffffff", DARK))


def test_the_first_colours_differ_for_readers_who_see_no_red_or_no_green():
    # Viénot's reduction of linear RGB for protanopes and deuteranopes, as 3 x 3 matrices
    reductions = [
        np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
        np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
    ]
    linear = np.array([[(int(hue[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)] for hue in PALETTE[:4]])
    for reduction in reductions:
        seen = np.clip(linear @ reduction.T, 0, 1) ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(4, 1)]
        assert apart.min() > 0.17  # as far apart as two greys that differ by 25 of 255


def test_figures_are_on_white_whatever_is_behind_them():
    import io

    from matplotlib.image import imread

    file = io.BytesIO()
    plots.transition_graph(small_posterior(gaussian_model())).savefig(file, format="png")
    corner = imread(io.BytesIO(file.getvalue()))[0, 0]
    np.testing.assert_array_equal(corner, [1, 1, 1, 1])


def test_pyplot_is_left_alone():
    def figures():
        return list(matplotlib.pyplot.get_fignums()) if "matplotlib.pyplot" in sys.modules else []

    before = figures()  # other tests, and other libraries, may have left some
    rendered(plots.transition_graph(small_posterior(gaussian_model())))
    assert figures() == before


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


def test_simulated_data_lie_around_those_of_the_right_model(known, posterior):
    figure = plots.predictive_check(posterior, known.sequences, count=8)
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["mean", "standard deviation"]
    for axes in figure.axes[:7]:
        dots, line = axes.lines
        assert len(dots.get_xdata()) == 8
        middle, spread = np.mean(dots.get_xdata()), np.std(dots.get_xdata())
        assert abs(line.get_xdata()[0] - middle) < 6 * spread
    rendered(figure)


@pytest.mark.slow  # compiles the windows of every buffer length
def test_buffer_report_is_drawn(known, posterior):
    free = open_data(known.sequences.rows(0, 1000).values)
    figure = plots.buffer_report(posterior, free, blocks=40)
    assert figure.axes[0].get_yscale() == "log" and figure.axes[0].get_ylim()[0] >= 1e-16
    rendered(figure)


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


def test_axes_of_time():
    assert time_axis(100, None) == (1.0, "sample")
    for length, label in ((1, "µs"), (1e5, "ms"), (1e8, "s"), (1e9, "min"), (1e11, "h")):
        assert time_axis(length, 1e6)[1] == f"time ({label})"
    scale, _ = time_axis(1e5, 1e6)
    assert scale * 1000 == pytest.approx(1.0)  # a thousand samples at 1 MHz: one millisecond


def test_texts_are_never_formulas():
    figure = new_figure(2, 2)
    figure.subplots().set_title(plain(r"$\nonsense{ $"))
    rendered(figure)


def test_logarithmic_ticks_are_plain_numbers():
    axes = new_figure(4, 1).subplots()
    axes.set(xscale="log", xlim=(1.5, 90))
    few_ticks(axes.xaxis)
    inside = [tick for tick in axes.get_xticks() if 1.5 <= tick <= 90]
    assert inside == [2, 5, 10, 20, 50] and not axes.xaxis.get_ticklocs(minor=True).size


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
