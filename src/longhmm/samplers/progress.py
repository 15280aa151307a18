"""A progress bar for passes over the data."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

QUIET_SECONDS = 2.0


class RowsBar:
    """A bar that appears only when it is worth looking at; rows passed, rate, and time left at most."""

    def __init__(self, wanted: bool, total: int) -> None:
        self._wanted, self._total, self._began = wanted, total, time.monotonic()
        self._rows, self._text = 0, "EM"
        self._shown: Any = None

    def __enter__(self) -> RowsBar:
        return self

    def advance(self, rows: int) -> None:
        self._rows += rows
        if self._wanted and self._shown is None and time.monotonic() - self._began > QUIET_SECONDS:
            self._show()
        if self._shown is not None:
            rate = self._rows / (time.monotonic() - self._began)
            self._shown.update(self._task, completed=self._rows, description=f"{self._text}, {rate:,.0f} rows/s")

    def describe(self, text: str) -> None:
        self._text = text

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), "at most", TimeRemainingColumn())
        self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._shown.add_task(self._text, total=self._total)
        self._shown.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown.stop()
