"""What each state emits, feature by feature, with the names of columns."""

import numpy as np
import pytest

from longhmm import Bernoulli
from longhmm.data.sequences import open_data
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.posterior import Posterior, load
from longhmm.report.page import build_page
from longhmm.report.plots.emission_map import emission_table, emissions
from longhmm.report.subject import Scan, Subject
from posterior.fakes import chains_of
from report.pages import without_pictures
from report.reading import recording_in

MARKS = [f"H3K{each}" for each in range(10)]


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    """A file of ten binary marks with a head, and a posterior of it."""
    model, rng = HMM(2, Bernoulli(dim=10)), np.random.default_rng(0)
    probs = np.stack([np.linspace(0.1, 0.9, 10), np.linspace(0.8, 0.2, 10)])
    states, values = simulate(model, {"transition": [[0.9, 0.1], [0.2, 0.8]], "probs": probs}, 300, seed=1)
    file = tmp_path_factory.mktemp("marks") / "marks.csv"
    np.savetxt(file, values, fmt="%d", delimiter=",", header=",".join(MARKS), comments="")
    natural = {
        "transition": np.broadcast_to([[0.9, 0.1], [0.2, 0.8]], (2, 30, 2, 2)),
        "probs": np.clip(probs + 0.01 * rng.normal(size=(2, 30, 2, 10)), 0.01, 0.99),
    }
    data = open_data(file)
    return Posterior.from_chains(model.resolve(data), chains_of(model.resolve(data), natural), data), data, states


def test_names_of_columns_travel_to_tables_plots_and_the_page(marks, tmp_path):
    posterior, data, states = marks
    assert posterior.draws["probs"].coords["feature"].values.tolist() == MARKS
    assert "probs[1, H3K7]" in posterior.summary().index
    posterior.save(tmp_path / "run")
    assert "probs[1, H3K7]" in load(tmp_path / "run").summary().index
    table = emission_table(load(tmp_path / "run"))
    assert table.columns == MARKS and table.probabilities
    np.testing.assert_allclose(table.values, posterior.draws["probs"].mean(("chain", "draw")))
    axes = emissions(posterior).axes[0]
    assert [each.get_text() for each in axes.get_xticklabels()] == MARKS
    np.testing.assert_allclose([float(each.get_text()) for each in axes.texts], table.values.ravel(), atol=0.005)
    hues = {each.get_text(): each.get_color() for each in axes.texts}
    assert all((hue == "#ffffff") == (float(text) > 0.7) for text, hue in hues.items())  # to be read on dark cells
    path = states.astype(np.uint8)
    found = Scan(path, 255 * np.eye(2, dtype=np.uint8)[path])
    subject = Subject(posterior, data, "marks", found=found, events=posterior.events(data, path=path))
    with without_pictures():
        page = build_page(subject)
    assert [each["label"] for each in recording_in(page)["features"]] == MARKS  # all ten of them
    assert "level of H3K0" in page and 'state <span data-state="1">1</span>: H3K0 0.' in page
