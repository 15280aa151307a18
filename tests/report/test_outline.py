"""The frame of the page, and what it says of features: names, units, rates, what states emit."""

import re

import numpy as np

from longhmm import Gaussian
from longhmm.data.sequences import open_data
from longhmm.model.hmm import HMM
from longhmm.posterior.posterior import Posterior
from longhmm.report.html import Safe
from longhmm.report.outline import verdict_box, with_contents
from longhmm.report.page import build_page
from longhmm.report.subject import Subject
from posterior.fakes import chains_of
from report.pages import without_pictures
from report.reading import recording_in


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
