"""`longhmm rates`: how fast states follow one another, with intervals, as a table and a file."""

from pathlib import Path
from typing import Annotated

from typer import Option

from longhmm.cli import options
from longhmm.cli.output import Output, guarded


@guarded
def rates(
    run: options.Run,
    out: Annotated[Path, Option(help="Table of rates: .csv, .tsv or .parquet.")] = Path("rates.csv"),
    flow: Annotated[bool, Option("--flow", help="How often one state follows the other in the long run.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write the rates between states: per second where the sampling rate is known, else per sample.

    Columns: from, to, mean, sd, and low and high, the ends of the 90 % interval.
    """
    from longhmm.posterior.events import write_events
    from longhmm.posterior.run_directory import RunDirectory

    said, found = Output(as_json), RunDirectory.open(run)
    place = options.in_a_folder(out)
    posterior = found.posterior()
    table = posterior.rates(rate=found.model_rate, flow=flow)
    write_events(place, table)
    timed = found.model_rate is not None or posterior.model.transitions.dt is not None
    unit = "per second" if timed else "per sample"
    said.frame(f"Rates {unit}, with 90 % intervals", table.set_index("from"))
    said.say(f"rates: {place}")
    said.result({"run": run, "unit": unit, "rates": table, "file": place})
