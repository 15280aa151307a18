"""`longhmm view`: the page live, with every sample of the recording."""

from __future__ import annotations

from typing import Annotated

import typer

from longhmm.cli import options
from longhmm.cli.output import guarded


@guarded
def view(
    run: options.Run,
    recordings: Annotated[
        list[str] | None,
        typer.Argument(help="The recording, if it is no longer where it was.", metavar="RECORDING..."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
) -> None:
    """Serve the page of a run on this machine, with the recording at full resolution. Ctrl-C ends it."""
    from longhmm.cli.recordings import located
    from longhmm.report.viewer import serve

    serve(run, located(recordings) if recordings else None, port=port, open_browser=browser)
