"""`longhmm fit`: from a recording to a posterior."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longhmm.cli import options
from longhmm.cli.output import Output, guarded


@guarded
def fit(
    recordings: options.Recordings,
    states: Annotated[int, typer.Option(min=1, max=1000, help="Number of hidden states.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Directory for the run; it must not exist yet.")] = Path("run"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older run in that directory.")] = False,
    column: options.Columns = None,
    dataset: options.Dataset = None,
    rate: options.Rate = None,
    decimate: options.Decimate = 1,
    log: options.Log = False,
    detrend: options.Detrend = False,
    normalise: options.Normalise = False,
    held_out: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=0.9,
            help="Share of the recording, at its end, that is not fitted but predicted.",
            rich_help_panel=options.READING,
        ),
    ] = 0.0,
    emission: options.Emission = None,
    prior: options.Priors = None,
    stay: options.Stay = None,
    sampler: options.Sampler = options.SamplerName.auto,
    chains: options.Chains = 4,
    draws: options.Draws = 1000,
    time_limit: options.TimeLimit = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Fit a hidden Markov model to a recording and keep the posterior in a directory.

    Ctrl-C ends early and keeps the draws so far. States are numbered from 0 by rising level.

    Example: longhmm fit recording.abf --states 3 --out run
    """
    from longhmm.cli.inputs import build_model, check, checked_rate, chosen_columns, located, open_recordings, steps_of
    from longhmm.cli.running import draw
    from longhmm.errors import LongHMMError
    from longhmm.model.emissions import registry
    from longhmm.model.serialise import model_to_config
    from longhmm.posterior.run_directory import RunDirectory
    from longhmm.run.lock import locked

    if time_limit is not None and not time_limit > 0:
        raise LongHMMError(f"--time-limit must be a positive number of seconds, got {time_limit:g}.")
    said = Output(as_json)
    columns = chosen_columns(column)
    recording = open_recordings(recordings, dataset, columns)
    hertz = checked_rate(rate, recording)
    steps = steps_of(decimate=decimate, log=log, detrend=detrend, normalise=normalise, sequences=recording)
    data = steps.apply(recording)
    timing = "at an unknown rate" if hertz is None else f"at {hertz:g} Hz"
    said.say(f"{recording.name}: {recording.length:,} samples of {recording.dim} feature(s) {timing}")
    if not steps.changes_nothing:
        said.say(f"After preprocessing: {data.length:,} samples")
    guess = registry.guess(data) if emission is None else registry.Guess(emission, "as asked for")
    said.say(f"Emission: {guess.name} ({guess.reason})")
    model = build_model(guess.name, states, data, priors=prior or [], stay=stay)
    check(model, data, held_out)
    request = {
        "recordings": located(recordings),
        "dataset": dataset,
        "columns": columns,
        "rate": hertz,
        "unit": recording.unit,
        "preprocessing": steps.to_dict(),
        "held_out": held_out,
        "emission": {"name": guess.name, "reason": guess.reason},
        "model": model_to_config(model),
        "sample": {"sampler": str(sampler), "chains": chains, "draws": draws, "seed": seed, "time_limit": time_limit},
    }
    run = RunDirectory.create(out, request, overwrite=overwrite)
    with locked(run.path):
        code = draw(run, said, time_limit=time_limit)
    if code:
        raise typer.Exit(code)
