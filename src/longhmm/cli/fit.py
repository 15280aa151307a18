"""`longhmm fit` and `longhmm resume`: from a recording to a posterior, at once or after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longhmm.cli import options
from longhmm.cli.output import Output, guarded
from longhmm.errors import DataError, LongHMMError


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
        options.reading(min=0.0, max=0.9, help="Share of the recording, at its end, that is predicted, not fitted."),
    ] = 0.0,
    emission: options.Emission = None,
    prior: options.Priors = None,
    stay: options.Stay = None,
    sampler: options.Sampler = options.AUTO,
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
    from longhmm.cli.running import draw
    from longhmm.model.serialise import model_to_config
    from longhmm.posterior.run_directory import RunDirectory
    from longhmm.run.checkpoint import locked

    if time_limit is not None and not time_limit > 0:
        raise LongHMMError(f"--time-limit must be a positive number of seconds, got {time_limit:g}.")
    if rate is not None and not rate > 0:
        raise DataError(f"--rate must be a positive number of samples per second, got {rate:g}.")
    said = Output(as_json)
    recording, steps, data, guess = options.opened(
        recordings, dataset, column, emission, dict(decimate=decimate, log=log, detrend=detrend, normalise=normalise)
    )
    rate = recording.rate if rate is None else rate
    timing = "at an unknown rate" if rate is None else f"at {rate:g} Hz"
    said.say(f"{recording.name}: {recording.length:,} samples of {recording.dim} feature(s) {timing}")
    if not steps.changes_nothing:
        said.say(f"After preprocessing: {data.length:,} samples")
    said.say(f"Emission: {guess.name} ({guess.reason})")
    model = options.build_model(guess.name, states, data, priors=prior or [], stay=stay, held_out=held_out)
    request = {
        "recordings": options.located(recordings),
        "dataset": dataset,
        "columns": options.chosen_columns(column),
        "rate": rate,
        "unit": recording.unit,
        "preprocessing": steps.to_dict(),
        "held_out": held_out,
        "emission": {"name": guess.name, "reason": guess.reason},
        "model": model_to_config(model),
        "sample": {"sampler": sampler, "chains": chains, "draws": draws, "seed": seed, "time_limit": time_limit},
    }
    run = RunDirectory.create(out, request, overwrite=overwrite)
    with locked(run.path):
        code = draw(run, said, time_limit=time_limit)
    if code:
        raise typer.Exit(code)


@guarded
def resume(
    run: options.Run,
    draws: Annotated[
        int | None, typer.Option(min=1, help="Draws of each chain in all, if more are wanted than at first.")
    ] = None,
    time_limit: options.TimeLimit = None,
    as_json: options.Json = False,
) -> None:
    """Go on with a run that was stopped, to the same draws bit for bit as if it had not been.

    A run without a checkpoint starts over; a finished run is left as it is.
    """
    from longhmm.cli.running import checked, describe, draw
    from longhmm.posterior.run_directory import RunDirectory
    from longhmm.run.checkpoint import locked

    said = Output(as_json)
    found = RunDirectory.open(run)
    wanted = draws or checked(found).request["sample"]["draws"]
    if found.has_posterior:
        posterior = found.posterior()
        if posterior.n_draws >= wanted and posterior.verdict is not None:
            said.say(f"{run} is finished: {posterior.n_draws:,} draws of each chain.")
            said.result({**describe(found, posterior, said), "stopped": None})
            return
    with locked(found.path):
        code = draw(found, said, time_limit=time_limit, draws=wanted)
    if code:
        raise typer.Exit(code)
