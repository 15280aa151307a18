"""Pictures go where they are told to, show themselves in notebooks, and are reached from the posterior, too."""

import inspect

import numpy as np
import pytest
from matplotlib.figure import Figure

from longhmm import plots
from longhmm.errors import ModelError
from posterior.fakes import known_states


@pytest.fixture(scope="module")
def known():
    return known_states(400)


@pytest.fixture(scope="module")
def posterior(known):
    return known.posterior()


def test_pictures_are_drawn_in_given_axes(known, posterior):
    path = known.sequences.rows(0, 400).states
    events, shares = posterior.events(known.sequences, path=path), np.eye(2, dtype=np.float32)[path]
    cases = {
        "amplitudes": ([known.sequences], {}, 1),
        "dwell_times": ([events], {}, 2),
        "transition_graph": ([], {}, 1),
        "segmentation": ([known.sequences], {"path": path, "probabilities": shares}, 2),
        "forest": ([], {}, 2),
        "chain_traces": ([], {"entries": 2}, 4),
        "residual_check": ([known.sequences], {}, 2),
    }
    for name, (given, options, count) in cases.items():
        mine = Figure(figsize=(8, 8))
        axes = mine.subplots(count, 1, squeeze=False).ravel()
        found = getattr(plots, name)(posterior, *given, ax=axes if count > 1 else axes[0], **options)
        assert found is mine and len(mine.axes) == count, name
        assert all(each.has_data() for each in mine.axes), name
    with pytest.raises(ModelError, match=r"ax must be 2 matplotlib axes, one for each panel, got 1 of Axes\."):
        plots.forest(posterior, ax=Figure().subplots())
    with pytest.raises(ModelError, match=r"ax must be a matplotlib axes, got 1 of str\."):
        plots.transition_graph(posterior, ax="here")


def test_every_picture_takes_axes():
    for name in plots.__all__:
        assert "ax" in inspect.signature(getattr(plots, name)).parameters, name


def test_a_figure_shows_itself_at_the_end_of_a_cell(posterior):
    assert plots.transition_graph(posterior)._repr_png_().startswith(b"\x89PNG")


def test_numbers_of_the_graph_do_not_overlap():
    from longhmm.posterior.posterior import Posterior
    from posterior.fakes import chains_of, gaussian_model

    rng = np.random.default_rng(0)
    for k in (3, 4):
        model = gaussian_model(k)
        rows = rng.dirichlet(np.ones(k) + 20 * np.eye(k)[0], size=k) * 0.4 + 0.6 * np.eye(k)
        natural = {
            "transition": np.broadcast_to(rows, (1, 10, k, k)),
            "mean": np.broadcast_to(np.arange(k), (1, 10, k)),
        }
        figure = plots.transition_graph(Posterior.from_chains(model, chains_of(model, natural)))
        figure.draw_without_rendering()
        boxes = [each.get_window_extent() for each in figure.axes[0].texts if each.get_bbox_patch() is not None]
        assert len(boxes) > k
        hits = [(a, b) for a in range(len(boxes)) for b in range(a) if boxes[a].overlaps(boxes[b])]
        assert hits == [], k
