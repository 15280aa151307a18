"""A bar in a notebook: shown, advanced and taken away."""

import sys
import time
import types

import pytest

from longhmm import progress
from longhmm.notebook import in_notebook
from longhmm.progress import Bar


@pytest.fixture
def shown(monkeypatch):
    """A notebook of which only the output is there."""
    said: list[str] = []
    display = types.ModuleType("IPython.display")
    display.HTML = str
    handle = types.SimpleNamespace(update=said.append)
    display.display = lambda text, display_id: (said.append(text), handle)[1]
    shell = type("ZMQInteractiveShell", (), {})()
    whole = types.ModuleType("IPython")
    whole.get_ipython = lambda: shell
    whole.display = display
    monkeypatch.setitem(sys.modules, "IPython", whole)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    return said


def test_a_bar_is_shown_advanced_and_taken_away(shown):
    assert in_notebook()
    with Bar() as bar:
        bar.phase("reading <rows>", total=100, unit="rows")
        bar.advance(10)
        limit = time.monotonic() + 10
        while not shown and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(0.25)
        bar.advance(40)
        bar.phase("next")
    assert "reading &lt;rows&gt;" in shown[0] and "value='0.1000'" in shown[0]
    assert any("value='0.5000'" in each and "rows/s" in each for each in shown)
    assert "next" in shown[-2] and shown[-1] == ""
