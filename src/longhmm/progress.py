"""A progress bar that appears only when it is worth looking at: phase, rate and time left."""

import threading
import time
from typing import Any

from longhmm.notebook import NotebookProgress, in_notebook

QUIET_SECONDS = 1.0


class Bar:
    """Counts work in phases; shown on standard error once a second has passed, gone when it is done.

    It appears by itself, also while a phase has nothing to count yet, and may be advanced from any thread.

    Example:
        >>> with Bar(wanted=False) as bar:
        ...     bar.phase("reading", total=10, unit="rows")
        ...     bar.advance(10)
    """

    def __init__(self, wanted: bool = True) -> None:
        self._text, self.unit, self._done = "", "steps", 0.0
        self._total: float | None = None
        self._phase_began = time.monotonic()
        self._lock = threading.Lock()
        self._timer = threading.Timer(QUIET_SECONDS, self._show) if wanted else None
        self._shown: Any = None

    def __enter__(self) -> "Bar":
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def phase(self, text: str, *, total: float | None = None, unit: str = "steps") -> None:
        """Begin a new phase of `total` units; None where the end is not known."""
        with self._lock:
            self._text, self.unit, self._total, self._done = text, unit, total, 0.0
            self._phase_began = time.monotonic()
            if self._shown is not None:
                self._shown.reset(self._shown.task_ids[0], total=total, description=text)

    def advance(self, amount: float) -> None:
        """Count `amount` units as done."""
        with self._lock:
            self._done += amount
            rate = self._done / max(time.monotonic() - self._phase_began, 1e-9)
            if self._shown is not None:
                text = f"{self._text}, {rate:,.0f} {self.unit}/s"
                self._shown.update(self._shown.task_ids[0], completed=self._done, description=text)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), "left", TimeRemainingColumn())
        with self._lock:
            if self._timer is None:  # it is over already
                return
            in_terminal = Progress(*columns, console=Console(stderr=True), transient=True)
            self._shown = NotebookProgress() if in_notebook() else in_terminal
            self._shown.add_task(self._text, total=self._total, completed=self._done)
            self._shown.start()

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._shown is not None:
                self._shown.stop()
                self._shown = None
