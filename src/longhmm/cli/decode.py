"""`longhmm decode`: the states of a recording, as tables and traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longhmm.cli import options
from longhmm.cli.output import Output, guarded, seconds

MORE = "Further outputs"


@guarded
def decode(
    run: options.Run,
    recordings: Annotated[
        list[str] | None,
        typer.Argument(
            help="The recording; by default that of the fit. It is preprocessed like that.", metavar="RECORDING..."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Table of events: .csv, .tsv or .parquet.")] = Path("events.csv"),
    idealised: Annotated[
        Path | None, typer.Option(help="The level of every sample, as .npy.", rich_help_panel=MORE)
    ] = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(
            help="The probability of every state at every sample the model saw, as .npy.", rich_help_panel=MORE
        ),
    ] = None,
    dwt: Annotated[Path | None, typer.Option(help="QuB's list of dwells.", rich_help_panel=MORE)] = None,
    bed: Annotated[Path | None, typer.Option(help="Genome browsers' BED.", rich_help_panel=MORE)] = None,
    bin_size: Annotated[int, typer.Option(min=1, help="Base pairs per sample, for --bed.", rich_help_panel=MORE)] = 1,
    chromosome: Annotated[
        list[str] | None, typer.Option(help="Name of each sequence, for --bed.", rich_help_panel=MORE)
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Find the most probable state of every sample and write a table of events.

    Columns: sequence, start (inclusive) and end (exclusive) in samples, start_s and end_s in seconds where the rate is
    known, state, level in the units of the file, with its interval.
    """
    from longhmm.cli.inputs import located
    from longhmm.errors import DataError
    from longhmm.posterior.decode import decode as best_path
    from longhmm.posterior.events import idealised as idealise
    from longhmm.posterior.events import spread_by_state, write_bed, write_dwt, write_events
    from longhmm.posterior.probabilities import state_probabilities
    from longhmm.posterior.run_directory import RunDirectory

    said = Output(as_json)
    for file in (out, idealised, probabilities, dwt, bed):
        if file is not None and not file.absolute().parent.is_dir():
            raise DataError(f"the folder of {file} does not exist; make it first, or choose another place.")
    found = RunDirectory.open(run)
    posterior = found.posterior()
    given = located(recordings) if recordings else None
    recording = found.recording(given)
    data = found.data(given)
    path = best_path(posterior, data)
    table = found.events(posterior, given, path=path)
    rate = recording.rate or found.rate
    written = {"events": out}
    write_events(out, table)
    if idealised is not None:
        idealise(table, out=idealised)
        written["idealised"] = idealised
    if probabilities is not None:
        state_probabilities(posterior, data, out=probabilities)
        written["probabilities"] = probabilities
    if dwt is not None:
        if rate is None:
            raise DataError("--dwt needs the sampling rate, which the file does not say; fit again with --rate.")
        write_dwt(dwt, table, rate, spread_by_state(recording, path, posterior.model.n_states, found.preprocessing))
        written["dwt"] = dwt
    if bed is not None:
        if chromosome is not None and len(chromosome) != recording.n_sequences:
            raise DataError(
                f"--chromosome must name each of {recording.n_sequences} sequence(s), got {len(chromosome)} name(s)."
            )
        write_bed(bed, table, names=chromosome, bin_size=bin_size)
        written["bed"] = bed
    length = (table["end"] - table["start"]).groupby(table["state"])
    rows = table.groupby("state").agg(level=("level", "first"), visits=("state", "size"))
    rows["mean_length"] = length.mean()
    rows["occupancy"] = length.sum() / (table["end"] - table["start"]).sum()
    if rate is not None:
        rows["mean_length_s"] = rows["mean_length"] / rate
    people = rows.rename(columns={"mean_length": "mean length (samples)", "mean_length_s": "mean length"})
    if rate is not None:
        people["mean length"] = [seconds(each) for each in people["mean length"]]
    said.frame(f"{len(table):,} events in {recording.length:,} samples", people)
    for what, file in written.items():
        said.say(f"{what}: {file}")
    said.result(
        {
            "run": str(run),
            "recording": recording.name,
            "samples": recording.length,
            "events": len(table),
            "rate": rate,
            "states": rows,
            "files": {what: str(file) for what, file in written.items()},
        }
    )
