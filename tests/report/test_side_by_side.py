"""Two runs on one page: each says what it says alone, and states are counted in pairs."""

import json
import re

import numpy as np
import pytest

from longhmm.errors import DataError
from longhmm.report import html, side_by_side
from longhmm.report.plots.style import number
from longhmm.report.side_by_side import SIDES, shared, write_side_by_side
from report.pages import make_run
from report.reading import Outline


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of equal names, of two recordings that differ in some samples."""
    found = [make_run(tmp_path_factory.mktemp("side")) for _ in SIDES]
    values = np.load(found[1][1])
    np.save(found[1][1], np.where(np.arange(len(values)) < 500, -values, values))
    return [run for run, _ in found]


@pytest.fixture(scope="module")
def page(runs):
    place = write_side_by_side(*runs)
    assert place == runs[0] / "beside-run.html"
    return place.read_text(encoding="utf-8")


def test_both_runs_are_there_with_their_recordings(page, runs):
    outline = Outline(page)
    stored = {attrs["id"]: json.loads(text) for attrs, text in outline.scripts if attrs.get("id")}
    assert list(stored) == list(SIDES)
    assert [each["length"] for each in stored.values()] == [3000, 3000]
    assert stored["left"]["stretch"]["features"] != stored["right"]["stretch"]["features"]
    assert [attrs["data-recording"] for tag, attrs in outline.tags if "data-recording" in attrs] == list(SIDES)
    names = [f"{run.parent.name}/run" for run in runs]  # as much of the way as tells them apart
    assert re.findall(r"<h2>(.*?)</h2>", page) == [*names, "Where they differ"]
    assert f"<h1>{' beside '.join(names)}</h1>" in page


def test_no_two_things_have_one_name(page):
    marks = re.findall(r'\bid="([^"]+)"', page)
    assert len(marks) == len(set(marks)) and {"verdict-left", "verdict-right"} <= set(marks)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(marks)
    assert set(re.findall(r'xlink:href="#([^"]+)"', page)) <= set(marks)


def test_states_are_counted_in_pairs(page, runs):
    import longhmm as lh

    paths = [lh.load(run).decode(run.parent / "recording.npy") for run in runs]
    counts = [[int(np.sum((paths[0] == a) & (paths[1] == b))) for b in range(2)] for a in range(2)]
    assert np.min(counts) > 20
    listed = re.search(r'<table aria-label="states of both">.*?</table>', page, re.DOTALL)[0]
    assert [int(each.replace(",", "")) for each in re.findall(r"<td[^>]*>([\d,]+)</td>", listed)] == np.ravel(
        counts
    ).tolist()
    agree = max(np.trace(counts), np.trace(counts[::-1])) / 3000
    assert f"{number(100 * agree, 3)} % of the samples agree" in " ".join(Outline(page).words)


def test_pairs_of_states():
    counts = shared(np.array([0, 0, 1, 1, 1], np.uint8), np.array([2, 2, 0, 1, 1], np.uint8), 2, 3)
    np.testing.assert_array_equal(counts, [[0, 0, 2], [1, 2, 0]])


def test_recordings_of_different_lengths_are_not_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side, "picture", lambda *args, **options: html.Safe(""))
    runs = []
    for name, length in (("one", 300), ("two", 400)):
        (tmp_path / name).mkdir()
        runs.append(make_run(tmp_path / name, length=length)[0])
    page = write_side_by_side(*runs, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Paths are compared where both runs have decoded one recording" in page
    with pytest.raises(DataError, match="beside must be another run"):
        write_side_by_side(runs[0], runs[0])
