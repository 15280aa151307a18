"""`longhmm report`: a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longhmm.cli import options
from longhmm.cli.output import Output, guarded


@guarded
def report(
    run: options.Run,
    recordings: Annotated[
        list[str] | None,
        typer.Argument(help="The recording, if it is no longer where it was.", metavar="RECORDING..."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; by default report.html in the run.")] = None,
    as_json: options.Json = False,
) -> None:
    """Write one self-contained page: the verdict, what was found, how sure, and the recording to zoom into."""
    from longhmm.cli.recordings import located
    from longhmm.posterior.report import write_report

    said = Output(as_json)
    page = write_report(run, out, located(recordings) if recordings else None)
    said.say(f"Page: {page}")
    said.result({"run": str(run), "page": str(page)})
