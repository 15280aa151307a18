"""Sampling for a run directory, to begin with and after a stop, and what is said when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longhmm import samplers
from longhmm.cli.options import AUTO, sampler_names
from longhmm.cli.output import INTERRUPTED, Output, seconds
from longhmm.errors import DataError, ModelError

if TYPE_CHECKING:
    import pandas as pd

    from longhmm.model.hmm import HMM
    from longhmm.posterior.posterior import Posterior
    from longhmm.posterior.run_directory import RunDirectory

LEAST = {"chains": 1, "draws": 1, "seed": 0}  # settings of a run, with the smallest value of each


def checked(run: RunDirectory) -> RunDirectory:
    """The run, if its settings can be carried out."""

    asked = run.request["sample"]
    whole = all(type(asked.get(name)) is int and asked[name] >= least for name, least in LEAST.items())
    if not whole or asked.get("sampler") not in sampler_names():
        raise DataError(f"{run.path} has no sound entry 'sample'; the run is damaged, restore a copy of it.")
    return run


def model_of(run: RunDirectory) -> HMM:
    """The model that the run was asked for."""
    from longhmm.model.serialise import model_from_config

    try:
        return model_from_config(run.request["model"])
    except ModelError:
        raise
    except Exception:  # a description that `fit` did not write can fail in any way
        raise DataError(f"{run.path} has no sound entry 'model'; the run is damaged, restore a copy of it.") from None


def draw(run: RunDirectory, out: Output, *, time_limit: float | None, draws: int | None = None) -> int:
    """Sample until the run is complete, keep the posterior, and show it; returns the exit code."""
    from longhmm.run.limit import Limit, TimeIsOver
    from longhmm.run.sample import CHECKS, drawn, judge, requested

    limit = Limit(time_limit)
    wanted = run.request["sample"]
    fitted, held, continues = run.split()
    try:
        request = requested(
            model_of(run),
            fitted,
            sampler=None if wanted["sampler"] == AUTO else samplers.from_name(wanted["sampler"]),
            chains=wanted["chains"],
            draws=wanted["draws"] if draws is None else draws,
            seed=wanted["seed"],
            checkpoint=run.path,
        )
        posterior = drawn(request, limit, reserve=CHECKS)
    except (KeyboardInterrupt, TimeIsOver) as stop:
        out.say(f"Stopped with nothing to show yet; `longhmm resume {run.path}` takes the run up again.")
        if isinstance(stop, TimeIsOver):
            raise
        out.result({"run": str(run.path), "stopped": "Ctrl-C", "draws": 0})
        return INTERRUPTED
    run.save(posterior)  # before the checks, which take a while
    judge(posterior, limit)
    run.save(posterior)
    score = None
    if held is not None and limit.left > 0:
        score = posterior.score(held, after=fitted if continues else None)
    document = describe(run, posterior, out)
    if score is not None:
        out.say(f"Held out: {score}")
        document["held_out"] = {"per_observation": score.per_observation, "log_density": score.log_density}
    stopped = next((note for note in posterior.notes if note.startswith("stopped early")), None)
    if stopped is not None:
        out.say(f"{stopped.capitalize()}; `longhmm resume {run.path}` goes on.")
    out.result({**document, "stopped": stopped})
    return INTERRUPTED if stopped is not None and "Ctrl-C" in stopped else 0


def show_states(run: RunDirectory, posterior: Posterior, out: Output) -> pd.DataFrame:
    """The table of levels and dwell times; returned with all its columns."""
    from longhmm.posterior.summary import levels

    states = levels(posterior, preprocessing=run.preprocessing).join(posterior.dwell(rate=run.model_rate))
    known = run.rate is not None
    shown = states[["level", "level_lower", "level_upper"]].rename(columns={"level_lower": "from", "level_upper": "to"})
    shown = shown.rename(columns={"level": f"level ({run.unit})"} if run.unit else {})
    dwell = [seconds(each) for each in states["dwell_s"]] if known else states["dwell"]
    shown["mean dwell" if known else "mean dwell (samples)"] = dwell
    out.frame("States, with 90 % intervals of their levels", shown.assign(occupancy=states["stationary"]))
    return states


def show_verdict(posterior: Posterior, out: Output) -> dict[str, Any] | None:
    """Notes and verdict in words; the verdict is returned as a document."""
    for note in posterior.notes:
        out.say(f"Note: {note}.")
    verdict = posterior.verdict
    if verdict is None:
        return None
    out.say(f"Verdict: {verdict}", "bold green" if verdict.kind == "trust" else "bold yellow")
    return verdict.to_dict()


def describe(run: RunDirectory, posterior: Posterior, out: Output) -> dict[str, Any]:
    """Show the states, the parameters and the verdict; the same as a document."""
    states = show_states(run, posterior, out)
    summary = posterior.summary()
    # The columns that fit on a narrow terminal; the smaller of the two effective sizes stands for both.
    sizes = ["ess_bulk", "ess_tail"]
    out.frame("Parameters", summary.drop(columns=sizes).assign(ess=summary[sizes].min(axis=1)))
    verdict = show_verdict(posterior, out)
    out.say(f"Run: {run.path}")
    return {
        "run": str(run.path),
        "model": repr(posterior.model),
        "states": states,
        "summary": summary,
        "verdict": verdict,
        "notes": list(posterior.notes),
        "chains": posterior.n_chains,
        "draws": posterior.n_draws,
        "sampler": posterior.settings.get("sampler"),
        "rate": run.rate,
        "unit": run.unit,
    }
