"""What commands print: tables and sentences for people, or exactly one JSON document for programs."""

import functools
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from longhmm.cli.language import in_options
from longhmm.cli.widths import in_parts
from longhmm.errors import LongHMMError

if TYPE_CHECKING:
    import pandas as pd

Command = TypeVar("Command", bound=Callable[..., Any])
FAILED, INTERRUPTED = 1, 130


class Output:
    """Standard output for people; with `as_json` all words go to standard error, and `result` alone is printed."""

    def __init__(self, as_json: bool) -> None:
        from rich.console import Console

        self.as_json, self.console = as_json, Console(stderr=as_json, highlight=False)

    def say(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, soft_wrap=True)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        for heads, cells in in_parts(columns, [[*map(shown, row)] for row in rows], self.console.width):
            drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
            for index, name in enumerate(heads):
                drawn.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
            for row in cells:
                drawn.add_row(*row)
            self.console.print(drawn)

    def frame(self, title: str, frame: "pd.DataFrame") -> None:
        named = getattr(frame, "shown", lambda: frame)().reset_index()
        self.table(title, [str(name) for name in named.columns], named.itertuples(index=False, name=None))

    def result(self, document: Any) -> None:
        if self.as_json:
            print(json.dumps(plain(document), allow_nan=False), flush=True)


def guarded(command: Command) -> Command:
    """Problems that the user can mend end in one sentence and a code other than zero, not in a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        code = FAILED
        try:
            with warnings.catch_warnings():
                warnings.showwarning = functools.partial(_tell, warnings.showwarning)
                return command(*args, **options)
        except LongHMMError as error:
            sentence = in_options(" ".join(str(error).split()))
        except OSError as error:
            named = f" {error.filename}" if error.filename else ""
            sentence = f"the system refused{named}: {error.strerror or error}."
        except MemoryError:
            sentence = "there is not enough memory: decimate the recording, or choose fewer columns."
        except KeyboardInterrupt:
            sentence, code = "stopped.", INTERRUPTED
        typer.echo(f"longhmm: {sentence}", err=True)
        if options.get("as_json"):
            sys.stdout.write(json.dumps({"error": sentence}) + "\n")
        raise typer.Exit(code)

    return run  # type: ignore[return-value]


def _tell(show: Callable[..., None], message: Any, category: type[Warning], *place: Any) -> None:
    """Warnings meant for users as a line of their own, without the place in the code; all others as ever."""
    if category is UserWarning:
        typer.echo(f"longhmm: {message}", err=True)
    else:
        show(message, category, *place)


def shown(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def seconds(value: float) -> str:
    units = (("h", 3600.0, 2), ("min", 60.0, 2), ("s", 1.0, 1), ("ms", 1e-3, 1), ("µs", 1e-6, 1), ("ns", 1e-9, 0))
    unit, size = next((unit, size) for unit, size, least in units if value >= least * size)
    return f"{value / size:.4g} {unit}"


def plain(value: Any) -> Any:
    """Nested values as JSON has them: no NumPy, no NaN, no infinities."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return plain(value.reset_index().to_dict(orient="records"))
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
