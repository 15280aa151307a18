"""The page says what the posterior says, carries the recording faithfully, and lets nothing in or out."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import longhmm as lh
from longhmm import plots
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.posterior.diagnostics.verdict import Kind
from longhmm.report import html, write_report
from longhmm.report import subject as pack
from longhmm.report.page import ADVICE, build_page
from longhmm.report.plots.style import digits_for, number, with_sd
from longhmm.report.recording import sampled
from longhmm.report.subject import Scan, Subject
from longhmm.report.viewer import open_run
from posterior.fakes import gaussian_model, small_posterior
from report.pages import SPIKE, make_posterior, make_run, without_buffer_report, without_pictures

KINDS = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f8": np.float64}


class Outline(HTMLParser):
    """Tags and texts of a page, and the contents of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self._inside: str | None = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._inside != "style":
            self.words.append(data)


def recording_in(page: str) -> dict:
    return json.loads(next(text for attrs, text in Outline(page).scripts if attrs.get("id") == "recording"))


def unpacked(packed: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["data"]), KINDS[packed["kind"]])


@pytest.fixture(scope="module", autouse=True)
def quick():
    with without_buffer_report():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("page"), "<script>alert('x')<!-- $\\frac.npy", unit="<b>$p$</b>")


@pytest.fixture(scope="module")
def page(run):
    assert write_report(run[0]) == run[0] / "report.html"
    return (run[0] / "report.html").read_text(encoding="utf-8")


def test_the_verdict_comes_first_then_findings_then_certainty_then_diagnostics(page):
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    expected = ["The result can be trusted", "The recording", "What was found", "How sure", "Diagnostics"]
    assert heads == [*expected, "How it was made"]
    assert "The chains agree &amp; all is &lt;well&gt;." in page


def test_tables_hold_the_numbers(page, run):
    posterior = lh.load(run[0])
    words = " ".join(Outline(page).words)
    transition = np.asarray(posterior.draws["transition"]).reshape(-1, 2, 2).mean(axis=0)
    assert number(transition[0, 1], 2) in words
    labels = {attrs.get("aria-label") for tag, attrs in Outline(page).tags if tag == "table"}
    assert labels >= {"states", "transition probabilities per sample", "visits to states", "parameters", "settings"}
    level = np.median(np.asarray(posterior.draws["mean"])[..., 1])
    assert number(level, 3) in words
    visits = len(posterior.events(run[1]))
    assert f"{visits:,} visits" in words


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


def test_the_recording_is_in_the_page_sample_by_sample(page, run):
    stored = recording_in(page)
    values = np.load(run[1])
    assert (stored["length"], stored["rate"], stored["unit"], stored["live"]) == (3000, 10_000.0, "<b>$p$</b>", False)
    stretch, feature = stored["stretch"], stored["features"][0]
    assert stretch["step"] == 1 and "high" not in stretch["features"][0]
    found = feature["low"] + unpacked(stretch["features"][0]["low"]) / 65534 * (feature["high"] - feature["low"])
    np.testing.assert_allclose(found, values, atol=(values.max() - values.min()) / 65534)
    low, high = feature["view"]
    assert high < SPIKE[1] / 2 and low < -3 and high > 3  # the spike does not flatten the picture


def test_states_and_visits_are_in_the_page(page, run):
    stored, posterior = recording_in(page), lh.load(run[0])
    path = posterior.decode(run[1])
    np.testing.assert_array_equal(unpacked(stored["stretch"]["masks"][0]), 1 << path)
    law = posterior.state_probabilities(run[1], draws=20)
    np.testing.assert_allclose(unpacked(stored["stretch"]["shares"][0]) / 255, law[:, 0], atol=0.5 / 255 + 1e-6)
    events = posterior.events(run[1])
    np.testing.assert_array_equal(unpacked(stored["visits"]["start"]), events["start"])
    np.testing.assert_array_equal(unpacked(stored["visits"]["state"]), events["state"])
    assert stored["visits"]["complete"]


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


def test_twenty_million_samples_stay_small():
    length, states = 20_000_000, 8
    rng = np.random.default_rng(0)
    values = rng.standard_normal(length, np.float32)
    data = open_data(values)
    path = np.repeat(rng.integers(0, states, length // 16, dtype=np.uint8), 16)
    found = Scan(path, np.broadcast_to(np.full(states, 255 // states, np.uint8), (length, states)))
    levels = np.arange(states, dtype=float)[:, None]
    scales = pack.ranges(data, levels)
    stored = pack.pack_recording(data, found, levels, rate=1e5, unit="pA")
    assert len(json.dumps(stored)) < 15_000_000  # drawings and tables need one or two million more
    stretch = stored["stretch"]
    assert stretch["step"] == 32 and not stored["visits"]["complete"]
    low = scales[0].low + unpacked(stretch["features"][0]["low"]) / 65534 * (scales[0].high - scales[0].low)
    np.testing.assert_allclose(low, values.reshape(-1, 32).min(axis=1), atol=2e-4)
    masks = unpacked(stretch["masks"][0])
    by_hand = np.bitwise_or.reduce(1 << path[: 32 * 1000].reshape(-1, stretch["mask_step"]).astype(np.uint8), axis=1)
    np.testing.assert_array_equal(masks[: len(by_hand)], by_hand)


def test_missing_values_have_a_code_of_their_own():
    data = open_data(np.array([1.0, np.nan, 3.0, 2.0]))
    stretch = pack.pack_stretch(data, None, pack.ranges(data, np.zeros((1, 1))), 0, 4, 100)
    assert unpacked(stretch["features"][0]["low"]).tolist() == [0, 65535, 65534, 32767]
    assert unpacked(stretch["features"][0]["high"]).tolist() == [0, 0, 65534, 32767]


def test_many_states_features_and_sequences_are_packed():
    rng = np.random.default_rng(0)
    data = open_data([rng.normal(size=(30, 6)), rng.normal(size=(20, 6))])
    path = rng.integers(0, 11, 50).astype(np.uint8)
    found = Scan(path, np.eye(11, dtype=np.uint8)[path] * 255)
    levels = rng.normal(size=(11, 6))
    stored = pack.pack_recording(data, found, levels, rate=None, unit="")
    assert len(stored["features"]) == len(stored["stretch"]["features"]) == 6 and stored["ends"] == [30]
    low, high = (unpacked(each) for each in stored["stretch"]["masks"])
    np.testing.assert_array_equal(low.astype(int) | high.astype(int) << 8, 1 << path.astype(int))
    assert 30 in unpacked(stored["visits"]["start"])
    np.testing.assert_allclose(found.occupancy, np.bincount(path, minlength=11) / 50)


def test_every_verdict_has_its_words():
    from typing import get_args

    assert set(ADVICE) == set(get_args(Kind))
    assert {tone for tone, *_ in ADVICE.values()} == {"good", "care", "bad"}
    assert [kind for kind, (tone, *_) in ADVICE.items() if tone == "good"] == ["trust"]


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.0, 4, "0"), (136.944, 5, "136.94"), (136.9, 5, "136.90"), (-0.00083, 2, "−0.00083"), (9.999, 2, "10"),
        (1234567.0, 3, "1,230,000"), (4.2e-9, 2, "4.2×10⁻⁹"), (-3e12, 1, "−3×10¹²"), (float("nan"), 3, "–"),
        (float("inf"), 3, "∞"),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(value, digits, shown):
    assert number(value, digits) == shown


def test_digits_follow_the_uncertainty():
    assert with_sd(136.9442, 0.0097) == "136.9442 ± 0.0097"
    assert with_sd(138.8, 34.0) == "139 ± 34"
    assert with_sd(3.0, 0.0) == "3.000"
    low, high = 136.928, 136.960
    assert number(low, digits_for(low, high)) != number(high, digits_for(low, high))


def test_durations():
    assert [html.duration(each) for each in (5.59e-5, 0.0022, 1.0, 0.999998, 300.0, 86400.0)] == [
        "55.9 µs", "2.20 ms", "1.00 s", "1.00 s", "5.00 min", "24.0 h",
    ]  # fmt: skip
    assert [sampled(each) for each in (5e5, 1 / 3600)] == ["500,000 samples per second", "a sample every 60.0 min"]


@pytest.mark.slow
def test_the_buffer_report_is_on_the_page(tmp_path, monkeypatch):
    from longhmm.report.plots.checks import buffer_report

    monkeypatch.setattr(plots, "buffer_report", buffer_report)
    data = open_data(np.random.default_rng(0).normal(size=400))
    subject = Subject(small_posterior(gaussian_model()), data, "t")
    page = build_page(subject)
    assert "Not drawn" not in page and "buffer length (observations)" in page


def test_every_picture_of_a_page_has_a_caption():
    """Also those that few models have: the baseline of a drift."""
    import ast
    from pathlib import Path

    drawn = {
        node.args[0].value
        for file in Path(html.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "picture"
    }
    assert "baseline" in drawn and drawn <= set(html.CAPTIONS) and set(html.CAPTIONS) >= html.WIDE
