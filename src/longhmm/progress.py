"""A progress bar that appears only when it is worth looking at: phase, rate and time left."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

QUIET_SECONDS = 2.0


class Bar:
    """Counts work in phases; shown on standard error once two seconds have passed, gone when it is done.

    Example:
        >>> with Bar(wanted=False) as bar:
        ...     bar.phase("reading", total=10, unit="rows")
        ...     bar.advance(10)
    """

    def __init__(self, wanted: bool = True) -> None:
        self._wanted, self._began = wanted, time.monotonic()
        self._text, self._unit, self._done = "", "steps", 0.0
        self._total: float | None = None
        self._phase_began = self._began
        self._shown: Any = None
        self._task: Any = None

    def __enter__(self) -> Bar:
        return self

    def phase(self, text: str, *, total: float | None = None, unit: str = "steps") -> None:
        """Begin a new phase of `total` units; None where the end is not known."""
        self._text, self._unit, self._total, self._done = text, unit, total, 0.0
        self._phase_began = time.monotonic()
        if self._shown is not None:
            self._shown.reset(self._task, total=total, description=text)

    def describe(self, text: str) -> None:
        """Another text for the same phase."""
        self._text = text

    def advance(self, amount: float) -> None:
        """Count `amount` units as done."""
        self._done += amount
        now = time.monotonic()
        if self._wanted and self._shown is None and now - self._began > QUIET_SECONDS:
            self._show()
        if self._shown is not None:
            rate = self._done / max(now - self._phase_began, 1e-9)
            text = f"{self._text}, {rate:,.0f} {self._unit}/s"
            self._shown.update(self._task, completed=self._done, description=text)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), "left", TimeRemainingColumn())
        self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._shown.add_task(self._text, total=self._total)
        self._shown.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown.stop()
