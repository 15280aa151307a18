"""`longhmm fit`, `resume` and `compare`: from a recording to one posterior or several, at once or after a stop."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from longhmm import samplers
from longhmm.cli import alternatives, options, schemes
from longhmm.cli.language import how_often, rate_of_rows
from longhmm.cli.output import INTERRUPTED, Output, guarded, seconds
from longhmm.errors import LongHMMError

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.model.hmm import HMM
    from longhmm.posterior.posterior import Posterior
    from longhmm.posterior.run_directory import RunDirectory

LEAST = {"chains": 1, "draws": 1, "seed": 0}  # settings of a run, with the smallest value of each


@guarded
def fit(
    recordings: options.Recordings,
    states: schemes.States = None,
    out: Annotated[Path, Option(help="Directory for the run; it must not exist yet.")] = Path("run"),
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an older run in that directory.")] = False,
    column: options.Columns = None,
    dataset: options.Dataset = None,
    group: options.Group = None,
    time: options.Time = None,
    rate: options.Rate = None,
    decimate: options.Decimate = 1,
    fret: options.Fret = None,
    log: options.Log = False,
    detrend: options.Detrend = False,
    normalise: options.Normalise = False,
    held_out: Annotated[
        float,
        options.reading(min=0.0, max=0.9, help="Share of the recording, at its end, that is predicted, not fitted."),
    ] = 0.0,
    emission: options.Emission = None,
    prior: options.Priors = None,
    lags: alternatives.Lags = None,
    noise: alternatives.Noise = None,
    response: alternatives.Response = None,
    drift: alternatives.Drift = None,
    transitions: alternatives.Transitions = None,
    scheme: schemes.Scheme = None,
    channels: schemes.Channels = None,
    levels: schemes.Levels = None,
    brightness: schemes.Bright = False,
    durations: alternatives.Durations = None,
    stay: options.Stay = None,
    sampler: options.Sampler = samplers.AUTO,
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
    from longhmm.model.formula import chosen_columns
    from longhmm.model.serialise import model_to_config
    from longhmm.posterior.run_directory import RunDirectory

    if time_limit is not None and not time_limit > 0:
        raise LongHMMError(f"--time-limit must be a positive number of seconds, got {time_limit:g}.")
    said, states = Output(as_json), schemes.asked(states, scheme)
    names = chosen_columns(column, transitions, group, emission, prior)
    asked = dict(decimate=decimate, log=log, detrend=detrend, normalise=normalise, fret=fret)
    recording, steps, data, guess = options.opened(recordings, dataset, names, emission, asked)
    rate = rate_of_rows(recording, recordings, rate, time, group)
    said.say(f"{recording.name}: {recording.length:,} samples of {recording.dim} feature(s) {how_often(rate)}")
    if not steps.changes_nothing:
        said.say(f"After preprocessing: {data.length:,} samples")
    said.say(f"Emission: {guess.name} ({guess.reason})")
    chain = schemes.chain(states, scheme, channels, levels, transitions, rate and rate / decimate)
    more: Any = dict(priors=prior or [], stay=stay, held_out=held_out, lags=lags, noise=noise, response=response)
    more |= dict(durations=durations, drift=drift, brightness=brightness, **chain.given)
    model = options.build_model(guess.name, chain.n_states, data, **more)
    request: dict[str, Any] = dict(recordings=options.located(recordings), dataset=dataset, **names, rate=rate)
    request |= dict(unit=recording.unit, preprocessing=steps.to_dict(), held_out=held_out, emission=guess._asdict())
    wanted = dict(sampler=sampler, chains=chains, draws=draws, seed=seed, time_limit=time_limit)
    request |= dict(model=model_to_config(model), sample=wanted)
    draw(RunDirectory.create(out, request, overwrite=overwrite), said, time_limit, draws)


@guarded
def resume(
    run: options.Run,
    draws: Annotated[int | None, Option(min=1, help="Draws of each chain in all, if more are wanted.")] = None,
    time_limit: options.TimeLimit = None,
    as_json: options.Json = False,
) -> None:
    """Go on with a run that was stopped, also in its checks, to the same draws bit for bit as if it had not been.

    A run without a checkpoint starts over; a finished run is left as it is.
    """
    from longhmm.posterior.run_directory import RunDirectory
    from longhmm.posterior.store import damaged

    said, found = Output(as_json), RunDirectory.open(run)
    asked = found.request["sample"]
    whole = all(type(asked.get(name)) is int and asked[name] >= least for name, least in LEAST.items())
    if not whole or asked.get("sampler") not in samplers.names():
        raise damaged(f"{found.path} has no sound entry 'sample'")
    wanted = draws or asked["draws"]
    if found.has_posterior:
        posterior = found.posterior()
        checked = not any("left no time to check" in note for note in posterior.notes)
        if posterior.n_draws >= wanted and posterior.verdict is not None and checked:
            said.say(f"{run} is finished: {posterior.n_draws:,} draws of each chain.")
            said.result({**describe(found, posterior, said), "stopped": None})
            return
    draw(found, said, time_limit, wanted)


@guarded
def compare(
    recordings: options.Recordings,
    states: schemes.Numbers = None,
    held_out: Annotated[float, Option(min=0.01, max=0.9, help="Share, at its end, on which models are judged.")] = 0.1,
    out: Annotated[Path, Option(help="Directory for the runs, one in it for each number.")] = Path("comparison"),
    overwrite: Annotated[bool, Option("--overwrite", help="Replace older runs in that directory.")] = False,
    column: options.Columns = None,
    dataset: options.Dataset = None,
    group: options.Group = None,
    time: options.Time = None,
    rate: options.Rate = None,
    decimate: options.Decimate = 1,
    fret: options.Fret = None,
    log: options.Log = False,
    detrend: options.Detrend = False,
    normalise: options.Normalise = False,
    emission: options.Emission = None,
    prior: options.Priors = None,
    lags: alternatives.Lags = None,
    noise: alternatives.Noises = None,
    response: alternatives.Response = None,
    drift: alternatives.Drifts = None,
    transitions: alternatives.Transitions = None,
    scheme: schemes.Schemes = None,
    channels: schemes.NumbersOfChannels = None,
    levels: schemes.SeveralLevels = None,
    durations: alternatives.DwellTimes = None,
    stay: options.Stay = None,
    sampler: options.Sampler = samplers.AUTO,
    chains: options.Chains = 4,
    draws: options.Draws = 500,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Fit several --states, --scheme, --channels, --noise, --drift, --durations; rank them by how they predict."""
    from longhmm.cli.kept_runs import KeptRuns
    from longhmm.model.formula import chosen_columns
    from longhmm.posterior.compare import compare as rank
    from longhmm.run.sample import sample

    numbers = options.whole_numbers("--states", given) if (given := schemes.asked(states, scheme)) else []
    names, said = chosen_columns(column, transitions, group, emission, prior), Output(as_json)
    asked = dict(decimate=decimate, log=log, detrend=detrend, normalise=normalise, fret=fret)
    recording, steps, data, guess = options.opened(recordings, dataset, names, emission, asked)
    rate = rate_of_rows(recording, recordings, rate, time, group)
    said.say(f"{recording.name}: {data.length:,} samples; emission: {guess.name} ({guess.reason})")
    how: Any = dict(priors=prior or [], stay=stay, held_out=held_out, response=response, lags=lags)
    build = partial(options.build_model, guess.name, data=data, **how)
    every = schemes.chains(numbers, scheme, channels, levels, transitions, rate and rate / decimate)
    models = alternatives.alternatives(every, noise, drift, durations, build, said.say)
    wanted: Any = dict(sampler=sampler, chains=chains, draws=draws, seed=seed)
    request = dict(recordings=options.located(recordings), dataset=dataset, **names, rate=rate, sample=wanted)
    request |= dict(unit=recording.unit, preprocessing=steps.to_dict(), held_out=held_out, emission=guess._asdict())
    kept = KeptRuns(out, overwrite, request, models)

    def fitted(model: HMM, training: Any) -> Posterior:
        said.say(f"Fitting {kept.names[id(model)]} ...")
        return kept.keep(model, sample(model, training, verdict=False, **wanted))

    ranked = rank(models, data, held_out=held_out, fit=fitted)
    runs = kept.show(said)
    said.frame("Held-out log predictive density, the best first", ranked)
    said.say("A difference below twice its error is no reason for the larger model: more states often describe noise.")
    said.result(dict(recording=recording.name, held_out=held_out, emission=guess.name, models=ranked, runs=runs))


def draw(run: RunDirectory, out: Output, time_limit: float | None, draws: int) -> None:
    """Sample until the run is complete, keep the posterior, and show it; ends with a code of its own on Ctrl-C."""
    from longhmm.model.serialise import stored_model
    from longhmm.posterior.store import damaged
    from longhmm.run.checkpoint import locked
    from longhmm.run.limit import Limit, TimeIsOver
    from longhmm.run.sample import CHECKS, drawn, judge, requested

    limit = Limit(time_limit)
    wanted = {name: run.request["sample"][name] for name in ("sampler", "chains", "seed")}
    with locked(run.path):
        fitted, held, continues = run.split()
        try:
            model = stored_model(run.request["model"], damaged(f"{run.path} has no sound entry 'model'"))
            request = requested(model, fitted, draws=draws, checkpoint=run.path, **wanted)
            posterior = drawn(request, limit, reserve=CHECKS)
        except (KeyboardInterrupt, TimeIsOver) as stop:
            out.say(f"Stopped with nothing to show yet; `longhmm resume {run.path}` takes the run up again.")
            if isinstance(stop, TimeIsOver):
                raise
            out.result({"run": str(run.path), "stopped": "Ctrl-C", "draws": 0})
            raise typer.Exit(INTERRUPTED) from None
        run.save(posterior)  # before the checks, which take a while
        judge(posterior, limit)
        run.save(posterior)
        after = fitted if continues else None
        score = posterior.score(held, after=after) if held is not None and limit.left > 0 else None
    document = describe(run, posterior, out)
    if score is not None:
        out.say(f"Held out: {score}")
        document["held_out"] = {"per_observation": score.per_observation, "log_density": score.log_density}
    stopped = next((note for note in posterior.notes if note.startswith("stopped early")), None)
    if stopped is not None:
        out.say(f"{stopped.capitalize()}; `longhmm resume {run.path}` goes on.")
    out.result({**document, "stopped": stopped})
    if stopped is not None and "Ctrl-C" in stopped:
        raise typer.Exit(INTERRUPTED)


def show_states(run: RunDirectory, posterior: Posterior, out: Output) -> pd.DataFrame:
    """The table of levels and dwell times; returned with all its columns."""
    from longhmm.posterior.names import level_name
    from longhmm.posterior.summary import levels

    states = levels(posterior, preprocessing=run.preprocessing).join(posterior.dwell(rate=run.model_rate))
    heads = {"level": level_name(posterior, run.unit), "level_lower": "from", "level_upper": "to"}
    shown = states[list(heads)].rename(columns=heads)
    name, column, form = ("mean dwell", "dwell_s", seconds) if run.rate else ("mean dwell (samples)", "dwell", float)
    shown[name] = [*map(form, states[column])]
    out.frame("States, with 90 % intervals of their levels", shown.assign(occupancy=states["stationary"]))
    return states


def show_verdict(posterior: Posterior, out: Output) -> dict[str, Any] | None:
    """Notes and verdict in words; the verdict is returned as a document."""
    for note in posterior.notes:
        out.say(f"Note: {note}.")
    if (verdict := posterior.verdict) is None:
        return None
    out.say(f"Verdict: {verdict}", "bold green" if verdict.kind == "trust" else "bold yellow")
    return verdict.to_dict()


def describe(run: RunDirectory, posterior: Posterior, out: Output) -> dict[str, Any]:
    """Show the states, the parameters and the verdict; the same as a document."""
    states = show_states(run, posterior, out)
    summary = posterior.summary()
    # The columns that fit on a narrow terminal; the smaller of the two effective sizes stands for both.
    sizes = ["ess_bulk", "ess_tail"]
    shown = summary[~summary.index.str.startswith(("drift[", "log_brightness["))]  # of which there may be many
    out.frame("Parameters", shown.drop(columns=sizes).assign(ess=shown[sizes].min(axis=1)))
    verdict = show_verdict(posterior, out)
    out.say(f"Run: {run.path}")
    document = dict(run=str(run.path), model=repr(posterior.model), states=states, summary=summary, verdict=verdict)
    document |= dict(notes=list(posterior.notes), chains=posterior.n_chains, draws=posterior.n_draws)
    return {**document, "sampler": posterior.settings.get("sampler"), "rate": run.rate, "unit": run.unit}
