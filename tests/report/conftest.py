"""One run and its page, with its pictures and without."""

import pytest

from longhmm.report import write_report
from report.pages import make_run, without_buffer_report, without_pictures


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("page"), "<script>alert('x')<!-- $\\frac.npy", unit="<b>$p$</b>")


@pytest.fixture(scope="session")
def page(run):
    with without_buffer_report():
        assert write_report(run[0]) == run[0] / "report.html"
    return (run[0] / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def text(run, tmp_path_factory):
    """The page without pictures, which take most of the time."""
    with without_pictures():
        found = write_report(run[0], tmp_path_factory.mktemp("text") / "page.html")
    return found.read_text(encoding="utf-8")
