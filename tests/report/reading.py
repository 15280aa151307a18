"""What is read out of a page."""

import base64
import json
from html.parser import HTMLParser

import numpy as np
import pytest

from longhmm.report import write_report
from report.pages import make_run

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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("page"), "<script>alert('x')<!-- $\\frac.npy", unit="<b>$p$</b>")


@pytest.fixture(scope="module")
def page(run):
    assert write_report(run[0]) == run[0] / "report.html"
    return (run[0] / "report.html").read_text(encoding="utf-8")
