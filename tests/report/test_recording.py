"""The recording as the page shows it: sample by sample, with states, and rates between them."""

import re

import numpy as np
import pytest

import longhmm as lh
from longhmm.report.page import build_page
from longhmm.report.recording import sampled
from longhmm.report.subject import Subject
from posterior.fakes import gaussian_model, small_posterior
from report.pages import SPIKE, without_pictures
from report.reading import recording_in, unpacked


def test_the_recording_is_in_the_page_sample_by_sample(text, run):
    stored = recording_in(text)
    values = np.load(run[1])
    assert (stored["length"], stored["rate"], stored["unit"], stored["live"]) == (3000, 10_000.0, "<b>$p$</b>", False)
    stretch, feature = stored["stretch"], stored["features"][0]
    assert stretch["step"] == 1 and "high" not in stretch["features"][0]
    found = feature["low"] + unpacked(stretch["features"][0]["low"]) / 65534 * (feature["high"] - feature["low"])
    np.testing.assert_allclose(found, values, atol=(values.max() - values.min()) / 65534)
    low, high = feature["view"]
    assert high < SPIKE[1] / 2 and low < -3 and high > 3  # the spike does not flatten the picture


def test_states_and_visits_are_in_the_page(text, run):
    stored, posterior = recording_in(text), lh.load(run[0])
    path = posterior.decode(run[1])
    np.testing.assert_array_equal(unpacked(stored["stretch"]["masks"][0]), 1 << path)
    law = posterior.state_probabilities(run[1], draws=20)
    np.testing.assert_allclose(unpacked(stored["stretch"]["shares"][0]) / 255, law[:, 0], atol=0.5 / 255 + 1e-6)
    events = posterior.events(run[1])
    np.testing.assert_array_equal(unpacked(stored["visits"]["start"]), events["start"])
    np.testing.assert_array_equal(unpacked(stored["visits"]["state"]), events["state"])
    assert stored["visits"]["complete"]


def test_rates_are_on_the_page_per_second():
    posterior = small_posterior(gaussian_model())
    with without_pictures():
        page = build_page(Subject(posterior, None, "t", rate=1000.0))
    table = re.search(r'<table aria-label="rates">.*?</table>', page, re.DOTALL).group()
    assert "rate (per second)" in table and table.count("<tr>") == 3
    first = float(re.search(r"<td>([\d.,]+)<small>", table).group(1).replace(",", ""))
    assert first == pytest.approx(posterior.rates(rate=1000.0)["mean"][0], rel=0.05)


def test_times_between_samples_as_people_write_them():
    assert [sampled(each) for each in (5e5, 1 / 3600)] == ["500,000 samples per second", "a sample every 60.0 min"]
