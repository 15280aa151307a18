"""A progress bar for notebooks that needs nothing but IPython: one line of HTML that is drawn anew."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

REDRAWN_AFTER = 0.2  # seconds


class NotebookProgress:
    """The part of `rich.progress.Progress` that a `Bar` asks for; in notebooks that one needs ipywidgets."""

    task_ids = (0,)

    def __init__(self) -> None:
        self._text, self._done = "", 0.0
        self._total: float | None = None
        self._began = self._drawn = 0.0
        self._handle: Any = None

    def add_task(self, description: str, *, total: float | None, completed: float) -> None:
        self._text, self._total, self._done = description, total, completed

    def start(self) -> None:
        from IPython.display import HTML, display

        self._began = self._drawn = time.monotonic()
        self._handle = display(HTML(self._html()), display_id=True)

    def reset(self, task: int, *, total: float | None, description: str) -> None:
        self._text, self._total, self._done, self._began = description, total, 0.0, time.monotonic()
        self._draw()

    def update(self, task: int, *, completed: float, description: str) -> None:
        self._text, self._done = description, completed
        if time.monotonic() - self._drawn >= REDRAWN_AFTER:
            self._draw()

    def stop(self) -> None:
        self._draw(over=True)

    def _draw(self, over: bool = False) -> None:
        from IPython.display import HTML

        self._drawn = time.monotonic()
        if self._handle is not None:
            self._handle.update(HTML("" if over else self._html()))

    def _html(self) -> str:
        spent, share = time.monotonic() - self._began, self._done / self._total if self._total else None
        bar = "<progress></progress>" if share is None else f"<progress value='{min(share, 1.0):.4f}'></progress>"
        left = f", {spent * (1 - share) / share:.0f} s left" if share and share < 1 else ""
        return f"<div class='longhmm-progress'>{escape(self._text)} {bar} {spent:.0f} s{left}</div>"


def in_notebook() -> bool:
    """Whether output goes to a notebook, which redraws nothing that is printed."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"
