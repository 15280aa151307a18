"""The frame of the page, and what it says of features: names, units, rates, what states emit."""

import re

import numpy as np
import pytest

from longhmm import Bernoulli, Gaussian
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import open_data
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.posterior import Posterior, load
from longhmm.progress import Bar
from longhmm.report.html import Safe
from longhmm.report.outline import verdict_box, with_contents
from longhmm.report.page import build_page
from longhmm.report.plots.emission_map import emission_table, emissions
from longhmm.report.subject import Scan, Subject
from posterior.fakes import chains_of, gaussian_model, small_posterior
from report.pages import without_buffer_report, without_pictures
from report.test_report import recording_in

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


def test_each_panel_has_the_level_of_its_own_feature():
    model = HMM(2, Gaussian(dim=2))
    means = np.array([[0.0, 50.0], [1.0, 70.0]])
    natural = {
        "transition": np.broadcast_to([[0.9, 0.1], [0.2, 0.8]], (1, 20, 2, 2)),
        "mean": np.broadcast_to(means, (1, 20, 2, 2)),
        "covariance": np.broadcast_to(np.eye(2), (1, 20, 2, 2, 2)),
    }
    data = open_data(means[np.arange(40) // 20])
    model = model.resolve(data)
    subject = Subject(Posterior.from_chains(model, chains_of(model, natural), data), data, "two")
    with without_pictures():
        stored = recording_in(build_page(subject))
    np.testing.assert_allclose(np.array(stored["levels"]), means)
    assert [each["name"] for each in stored["features"]] == ["feature 0", "feature 1"]


def test_values_that_were_changed_have_a_unit_of_their_own():
    raw = open_data(np.exp(np.random.default_rng(0).normal(size=50)))
    raw.unit = "pA"
    assert Preprocessing(log=True).apply(raw).unit == "log pA"
    assert Preprocessing().apply(raw).unit == "pA"
    assert Preprocessing(normalise=True).measured(raw).apply(raw).unit == "sd"


def test_rates_are_on_the_page_per_second():
    posterior = small_posterior(gaussian_model())
    with without_pictures():
        page = build_page(Subject(posterior, None, "t", rate=1000.0))
    table = re.search(r'<table aria-label="rates">.*?</table>', page, re.DOTALL).group()
    assert "rate (per second)" in table and table.count("<tr>") == 3
    first = float(re.search(r"<td>([\d.,]+)<small>", table).group(1).replace(",", ""))
    assert first == pytest.approx(posterior.rates(rate=1000.0)["mean"][0], rel=0.05)


def test_the_verdict_is_short_and_unfolds():
    box = verdict_box("bad", "!", "No", "what it means", "one thing is wrong. Also, a second. Also, a third.")
    shown, folded = box.split("<details>")
    assert "One thing is wrong." in shown and "second" not in shown
    assert "and 2 more reasons" in folded and folded.count("<li>") == 2 and "what it means" in folded
    assert box.count("One thing is wrong") == 1


def test_contents_lead_to_every_heading_once():
    body = Safe("<section></section>\n<h2>A &amp; b</h2>\n<h3>Same</h3>\n<h2>Same</h2>")
    page = with_contents(body, "</section>")
    assert re.findall(r'<h[23] id="([^"]+)"', page) == re.findall(r'href="#([^"]+)"', page) == ["a-b", "same", "same-2"]
    assert page.index("<nav") < page.index("<h2")


def test_a_report_says_what_it_is_doing(tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(Bar, "phase", lambda self, text, **options: heard.append(text))
    with without_buffer_report():
        small_posterior(gaussian_model()).report(np.zeros(30), tmp_path / "p.html")
    assert heard[0] == "decoding 30 observations"
    assert {"drawing: forest", "drawing: chains", "drawing: graph"} <= set(heard)
