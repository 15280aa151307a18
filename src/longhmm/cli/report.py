"""`longhmm report` and `longhmm view`: the page of a run, in a file or live with every sample of the recording."""

from pathlib import Path
from typing import Annotated

from typer import Option

from longhmm.cli import options
from longhmm.cli.fit import show_states, show_verdict
from longhmm.cli.output import Output, guarded


@guarded
def report(
    run: options.Run,
    recordings: options.Moved = None,
    out: Annotated[Path | None, Option(help="The file to write; by default report.html in the run.")] = None,
    as_json: options.Json = False,
) -> None:
    """Write one self-contained page: the verdict, what was found, how sure, and the recording to zoom into."""
    from longhmm.posterior.posterior import load
    from longhmm.posterior.run_directory import REQUEST, RunDirectory
    from longhmm.posterior.store import DOCUMENT
    from longhmm.report import write_report

    said = Output(as_json)
    is_run = (run / REQUEST).is_file() or not (run / DOCUMENT).is_file()  # else it is what Posterior.save wrote
    found = RunDirectory.open(run) if is_run else None
    posterior = load(run) if found is None else found.posterior()
    given = options.located(recordings) if recordings else None
    page = write_report(run, None if out is None else options.in_a_folder(out), given)
    states = None if found is None else show_states(found, posterior, said)
    verdict = show_verdict(posterior, said)
    said.say(f"Page: {page}")
    said.result({"run": run, "page": page, "states": states, "verdict": verdict})


@guarded
def view(
    run: options.Run,
    recordings: options.Moved = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 0,
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open a browser window.")] = True,
) -> None:
    """Serve the page of a run on this machine, with the recording at full resolution. Ctrl-C ends it."""
    from longhmm.report.viewer import serve

    serve(run, options.located(recordings) if recordings else None, port=port, open_browser=browser)
