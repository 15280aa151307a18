"""The page says what the posterior says, carries the recording faithfully, and lets nothing in or out."""

import base64
import hashlib
import re

import numpy as np
import pytest

from longhmm import plots
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.posterior.diagnostics.verdict import Kind
from longhmm.report import write_report
from longhmm.report.page import ADVICE, build_page
from longhmm.report.subject import Subject
from longhmm.report.viewer import open_run
from posterior.fakes import gaussian_model, small_posterior
from report.pages import make_posterior, make_run, without_buffer_report, without_pictures
from report.reading import Outline, recording_in


@pytest.fixture(scope="module", autouse=True)
def quick():
    with without_buffer_report():
        yield


def test_the_verdict_comes_first_then_findings_then_certainty_then_diagnostics(page):
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    expected = ["The result can be trusted", "The recording", "What was found", "How sure", "Diagnostics"]
    assert heads == [*expected, "How it was made"]
    assert "The chains agree &amp; all is &lt;well&gt;." in page


def test_hostile_names_stay_text(page):
    outline = Outline(page)
    assert [attrs.get("type") for attrs, _ in outline.scripts] == ["application/json", None]
    assert not {"b", "i"} & {tag for tag, attrs in outline.tags if tag in ("i",)}
    assert page.count("<b>") == page.count("<li><b>")  # those of the cards, none of the unit
    assert "<script>alert('x')<!-- $\\frac.npy" in outline.words
    assert "a note with <i>marks</i>" in outline.words
    assert not [name for _, attrs in outline.tags for name in attrs if name.startswith("on")]


def test_nothing_is_loaded_from_elsewhere(page):
    outline = Outline(page)
    links = [value for _, attrs in outline.tags for name, value in attrs.items() if name in ("src", "href", "action")]
    assert [each for each in links if not each.startswith("#")] == ["data:,"]
    allowed = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= allowed
    policy = next(attrs["content"] for tag, attrs in outline.tags if "http-equiv" in attrs)
    script = outline.scripts[-1][1]
    mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{mark}'" in policy
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy


def test_references_inside_drawings_do_not_clash(page):
    marks = re.findall(r'\bid="([^"]+)"', page)
    assert len(marks) == len(set(marks))
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(marks)
    assert set(re.findall(r'xlink:href="#([^"]+)"', page)) <= set(marks)


def test_every_drawing_and_control_has_a_name(page):
    for tag, attrs in Outline(page).tags:
        if tag in ("svg", "canvas", "button", "select"):
            assert attrs.get("aria-label"), (tag, attrs)
    assert '<html lang="en">' in page and 'name="viewport"' in page


def test_a_run_whose_recording_is_gone_has_a_page_without_it(tmp_path):
    run, recording = make_run(tmp_path)
    recording.unlink()
    page = write_report(run, tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert "The recording is not shown, since it cannot be read" in page and 'id="recording"' not in page
    assert '<h2 id="verdict">' in page and "10,000 samples per second" in page
    with pytest.raises(DataError, match=r"recording\.npy"):
        write_report(run, data=recording)


def test_a_recording_that_moved_can_be_given(tmp_path):
    run, recording = make_run(tmp_path)
    recording.rename(tmp_path / "elsewhere.npy")
    with without_pictures():
        page = write_report(run, data=tmp_path / "elsewhere.npy").read_text(encoding="utf-8")
    assert recording_in(page)["length"] == 3000


def test_preprocessing_is_applied_and_levels_are_those_of_the_file(tmp_path):
    steps = Preprocessing(decimate=2, normalise=True, centre=(10.0,), scale=(2.0,))
    run, _ = make_run(tmp_path, length=6000, preprocessing=steps.to_dict())
    subject = open_run(run)
    assert subject.data.length == 3000 and subject.rate == 5000.0
    np.testing.assert_allclose(subject.in_file_units(np.array([-3.0, 3.0])), [4.0, 16.0])
    (remark,) = subject.notes
    assert remark.endswith("the recording was changed: one sample in 2 was kept; it was centred and scaled.")
    with without_pictures():
        page = build_page(subject)
    assert re.search(r"<td>4\.0\d*<small>", page) and recording_in(page)["unit"] == "sd"


def test_data_that_cannot_be_decoded_are_shown_without_states(tmp_path):
    run, _ = make_run(tmp_path, length=300)
    np.save(tmp_path / "wide.npy", np.zeros((50, 3)))
    subject = open_run(run, tmp_path / "wide.npy")
    assert subject.found is None and "could not be decoded" in subject.notes[0]
    with without_pictures():
        assert recording_in(build_page(subject))["stretch"]["masks"] == []


def test_a_posterior_in_hand_has_a_page_too(tmp_path):
    values = np.load(make_run(tmp_path)[1])
    posterior = make_posterior(gaussian_model(), open_data(values))
    with without_pictures():
        place = posterior.report(values, tmp_path / "p.html", rate=10.0, unit="mV", title="Mine")
    page = place.read_text(encoding="utf-8")
    assert "<title>Mine · longhmm</title>" in page and recording_in(page)["rate"] == 10.0
    assert "The chains agree; the rest was not checked" in page  # it was not diagnosed
    data = open_data(values)
    data.rate, data.unit = 20.0, "pA"  # as if a file had said so
    with without_pictures():
        known = posterior.report(data, tmp_path / "k.html").read_text(encoding="utf-8")
    assert recording_in(known)["rate"] == 20.0 and "(pA)" in known
    alone = posterior.report(path=tmp_path / "q.html").read_text(encoding="utf-8")
    assert 'id="recording"' not in alone


def test_a_saved_posterior_finds_a_recording_with_a_full_name(tmp_path):
    recording = make_run(tmp_path)[1]
    make_posterior(gaussian_model(), open_data(recording)).save(tmp_path / "saved")
    assert open_run(tmp_path / "saved").data.length == 3000
    recording.unlink()
    assert "does not say where it is" in open_run(tmp_path / "saved").notes[0]


def test_places_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    with without_pictures(), pytest.raises(DataError, match="cannot be written"):
        small_posterior(gaussian_model()).report(path=tmp_path / "file" / "p.html")


def test_every_verdict_has_its_words():
    from typing import get_args

    assert set(ADVICE) == set(get_args(Kind))
    assert {tone for tone, *_ in ADVICE.values()} == {"good", "care", "bad"}
    assert [kind for kind, (tone, *_) in ADVICE.items() if tone == "good"] == ["trust"]


@pytest.mark.slow
def test_the_buffer_report_is_on_the_page(tmp_path, monkeypatch):
    from longhmm.report.plots.checks import buffer_report

    monkeypatch.setattr(plots, "buffer_report", buffer_report)
    data = open_data(np.random.default_rng(0).normal(size=400))
    subject = Subject(small_posterior(gaussian_model()), data, "t")
    page = build_page(subject)
    assert "Not drawn" not in page and "buffer length (observations)" in page
