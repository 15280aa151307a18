"""`longhmm watch`: the states of a recording while it is being made."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from longhmm.cli import options
from longhmm.cli.output import Output, guarded
from longhmm.errors import DataError

if TYPE_CHECKING:
    from longhmm.posterior.online import Update

POLL = 0.1  # seconds between looks at a file that grows
AT_ONCE = 1 << 16  # bytes


@guarded
def watch(
    run: options.Run,
    follow: Annotated[
        Path | None, Option(help="Text file (CSV and the like) that grows; standard input if left out.")
    ] = None,
    idle: Annotated[
        float | None, Option(help="End when nothing has arrived for so many seconds; else Ctrl-C ends it.")
    ] = None,
    lag: Annotated[int | None, Option(min=0, help="Samples after which a state is settled; else by a rule.")] = None,
    as_json: options.Json = False,
) -> None:
    """Follow a recording as it is written, and print events as soon as later samples no longer change them.

    A row per event: start (inclusive) and end (exclusive) in samples, start_s and end_s in seconds where the rate is
    known, state, and level in the units of the file. Preprocessing and columns are those of the fit.

    Example: longhmm watch run --follow recording.csv
    """
    from longhmm.posterior.run_directory import RunDirectory
    from longhmm.posterior.summary import levels

    said, found = Output(as_json), RunDirectory.open(run)
    if found.preprocessing.detrend:
        raise DataError(f"{run} was fitted with --detrend, which needs the whole recording; fit it again without.")
    posterior, every, rate = found.posterior(), found.preprocessing.decimate, found.rate
    live = posterior.online(lag=lag)
    table = Table(found.request.get("columns"), found.request.get("covariates"))
    visits, level = Visits(), levels(posterior, preprocessing=found.preprocessing)["level"].to_numpy()
    after = f"{live.lag * every:,} samples" + ("" if rate is None else f" ({live.lag * every / rate:.4g} s)")
    said.say(f"# Events are settled after {after}")
    names = ["start", "end", *([] if rate is None else ["start_s", "end_s"]), "state", "level"]
    said.say(",".join(names))
    events: list[dict[str, Any]] = []

    def tell(update: Update, last: bool = False) -> None:
        for start, end, state in visits.of(update, last):
            samples = (start * every, end * every)
            in_seconds = [] if rate is None else [each / rate for each in samples]
            events.append(dict(zip(names, [*samples, *in_seconds, state, float(level[state])], strict=True)))
            said.say(",".join(f"{each:.10g}" for each in events[-1].values()))

    with contextlib.suppress(KeyboardInterrupt):
        for lines in arriving(follow, idle):
            if (data := table.rows(lines, every)) is not None:
                tell(live.update(replace(found.preprocessing, decimate=1).apply(data)))
    rows = live.rows
    tell(live.finish(), last=True)
    said.result({"run": run, "samples": table.count, "rows": rows, "lag": live.lag, "rate": rate, "events": events})


class Visits:
    """Settled states, joined to visits that are told when they are over."""

    def __init__(self) -> None:
        self.start, self.state = 0, -1

    def of(self, update: Update, last: bool = False) -> Iterator[tuple[int, int, int]]:
        """Start, end and state of each visit that is over; with `last` the one that is not counts, too."""
        for row, state in enumerate(update.states.tolist(), update.settled):
            if state != self.state:
                if self.state >= 0:
                    yield self.start, row, self.state
                self.start, self.state = row, state
        end = update.settled + len(update.states)
        if last and self.state >= 0:
            yield self.start, end, self.state


class Table:
    """Lines of a text file as rows of numbers, by the names or numbers of columns."""

    def __init__(self, columns: Any, covariates: Any) -> None:
        self.columns, self.covariates, self.count = columns, covariates, 0
        self._names: list[str] | None = None
        self._waiting: list[str] = []

    def rows(self, lines: list[str], every: int) -> Any:
        """What the model sees of these lines, every n-th of all, or None if there are none of those."""
        import pandas as pd

        from longhmm.data.sequences import open_data
        from longhmm.data.source import column_indices

        lines = self._waiting + [line for line in lines if line.strip() and not line.startswith("#")]
        self._waiting = []
        if self._names is None:
            if len(lines) < 2:  # the second tells a header, and what stands between columns
                self._waiting = lines
                return None
            lines = lines[self._sniff(lines) :]
        assert self._names is not None
        chosen = column_indices(self.columns, self._names, "the recording")
        beside = [] if self.covariates is None else column_indices(self.covariates, self._names, "the recording")
        kept = [line for number, line in enumerate(lines, self.count) if number % every == 0]
        first = self.count + -self.count % every  # the number of the first that is kept
        values = [self._numbers(line, first + at * every, {*chosen, *beside}) for at, line in enumerate(kept)]
        self.count += len(lines)
        if not values:
            return None
        whole = pd.DataFrame(values, columns=range(len(self._names)), dtype=float)
        further = whole[beside].set_axis([self._names[each] for each in beside], axis=1) if beside else None
        return open_data(whole[chosen].to_numpy(), covariates=further)

    def _sniff(self, lines: list[str]) -> int:
        """How many lines are a header; names of columns, and what stands between them, are known afterwards."""
        from longhmm.data.formats.text import parse_number

        self._mark = next((mark for mark in "\t;,|" if mark in lines[1]), None)
        names = self._split(lines[0])
        header = any(parse_number(name) is None for name in names)
        self._names = names if header else [str(each) for each in range(len(names))]
        return int(header)

    def _split(self, line: str) -> list[str]:
        return [field.strip().strip('"').strip() for field in line.split(self._mark)]

    def _numbers(self, line: str, row: int, needed: set[int]) -> list[float]:
        from longhmm.data.formats.text import parse_number

        assert self._names is not None
        found = [parse_number(field) for field in self._split(line)]
        if len(found) != len(self._names):
            raise DataError(f"row {row} has {len(found)} fields but must have {len(self._names)}: {line!r}.")
        wrong = next((self._names[each] for each in sorted(needed) if found[each] is None), None)
        if wrong is not None:
            raise DataError(f"row {row} must have a number in column {wrong!r}, or nothing, got {line!r}.")
        return [float("nan") if number is None else number for number in found]


def arriving(file: Path | None, idle: float | None) -> Iterator[list[str]]:
    """Whole lines, as many as are there, as they come."""
    rest = b""
    with contextlib.ExitStack() as stack:
        try:
            source: Any = sys.stdin.buffer if file is None else stack.enter_context(file.open("rb"))
        except OSError as error:
            raise DataError(f"{file} cannot be read ({error.strerror}); give a text file.") from None
        heard = time.monotonic()
        while True:
            chunk = source.read1(AT_ONCE)
            if chunk:
                *lines, rest = (rest + chunk).split(b"\n")
                heard = time.monotonic()
                yield [line.decode("utf-8", "replace").rstrip("\r") for line in lines]
            elif file is None or (idle is not None and time.monotonic() - heard >= idle):
                break
            else:
                time.sleep(POLL)
    if rest.strip():
        yield [rest.decode("utf-8", "replace").rstrip("\r")]
