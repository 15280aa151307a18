"""`longhmm decode`, `report` and `view`: what is asked of a run: states of its recording, and its page."""

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from longhmm.cli import options
from longhmm.cli.fit import show_states, show_verdict
from longhmm.cli.output import Output, guarded, seconds
from longhmm.errors import DataError

further = partial(Option, rich_help_panel="Further outputs")


@guarded
def decode(
    run: options.Run,
    recordings: Annotated[
        list[str] | None,
        Argument(help="The recording, preprocessed like that of the fit (the default).", metavar="RECORDING..."),
    ] = None,
    out: Annotated[Path, Option(help="Table of events: .csv, .tsv or .parquet.")] = Path("events.csv"),
    idealised: Annotated[Path | None, further(help="The level of every sample, as .npy.")] = None,
    probabilities: Annotated[Path | None, further(help="Probability of every state at every sample, as .npy.")] = None,
    dwt: Annotated[Path | None, further(help="QuB's list of dwells.")] = None,
    bed: Annotated[Path | None, further(help="Genome browsers' BED.")] = None,
    bin_size: Annotated[int, further(min=1, help="Base pairs per sample, for --bed.")] = 1,
    chromosome: Annotated[list[str] | None, further(help="Name of each sequence, for --bed.")] = None,
    as_json: options.Json = False,
) -> None:
    """Find the most probable state of every sample and write a table of events.

    Columns: sequence, start (inclusive) and end (exclusive) in samples, start_s and end_s in seconds where the rate is
    known, state, level in the units of the file, with its interval.
    """
    from longhmm.posterior.events import idealised as idealise
    from longhmm.posterior.events import spread_by_state, write_bed, write_dwt, write_events
    from longhmm.posterior.names import level_name
    from longhmm.posterior.run_directory import RunDirectory

    said = Output(as_json)
    files = {"events": out, "idealised": idealised, "probabilities": probabilities, "dwt": dwt, "bed": bed}
    written = {what: options.in_a_folder(file) for what, file in files.items() if file is not None}
    found = RunDirectory.open(run)
    posterior = found.posterior()
    given = options.located(recordings) if recordings else None
    recording, data = found.recording(given), found.data(given)
    path = posterior.decode(data)
    table = found.events(posterior, given, path=path)
    rate = recording.rate or found.rate
    write_events(out, table)
    if idealised is not None:
        idealise(table, out=idealised)
    if probabilities is not None:
        posterior.state_probabilities(data, out=probabilities)
    if dwt is not None:
        if rate is None:
            raise DataError("--dwt needs the sampling rate, which the file does not say; fit again with --rate.")
        spread = spread_by_state(recording, path, posterior.model.n_states, found.preprocessing.decimate)
        write_dwt(dwt, table, rate, spread)
    if bed is not None:
        wanted = recording.n_sequences
        if chromosome is not None and len(chromosome) != wanted:
            raise DataError(f"--chromosome must name each of {wanted} sequence(s), got {len(chromosome)} name(s).")
        write_bed(bed, table, names=chromosome, bin_size=bin_size)
    lengths = table.assign(length=table["end"] - table["start"]).groupby("state")
    rows = lengths.agg(level=("level", "first"), visits=("state", "size"), mean_length=("length", "mean"))
    rows["occupancy"] = lengths["length"].sum() / lengths["length"].sum().sum()
    people = rows.rename(columns={"mean_length": "mean length (samples)", "level": level_name(posterior)})
    if rate is not None:
        rows["mean_length_s"] = rows["mean_length"] / rate
        people["mean length"] = [seconds(each) for each in rows["mean_length_s"]]
    said.frame(f"{len(table):,} events in {recording.length:,} samples", people)
    for what, file in written.items():
        said.say(f"{what}: {file}")
    document = {"run": run, "recording": recording.name, "samples": recording.length, "events": len(table)}
    said.result({**document, "rate": rate, "states": rows, "files": written})


@guarded
def report(
    run: options.Run,
    recordings: options.Moved = None,
    beside: Annotated[Path | None, Option(help="Another run, to be shown side by side with this one.")] = None,
    out: Annotated[Path | None, Option(help="The file to write; by default report.html in the run.")] = None,
    as_json: options.Json = False,
) -> None:
    """Write one self-contained page: the verdict, what was found, how sure, and the recording to zoom into."""
    from longhmm.posterior.posterior import load
    from longhmm.posterior.run_directory import REQUEST, RunDirectory
    from longhmm.posterior.store import DOCUMENT
    from longhmm.report import side_by_side, write_report

    said = Output(as_json)
    is_run = (run / REQUEST).is_file() or not (run / DOCUMENT).is_file()  # else it is what Posterior.save wrote
    found = RunDirectory.open(run) if is_run else None
    posterior = load(run) if found is None else found.posterior()
    where = (None if out is None else options.in_a_folder(out), options.located(recordings) if recordings else None)
    page = write_report(run, *where) if beside is None else side_by_side.write_side_by_side(run, beside, *where)
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
