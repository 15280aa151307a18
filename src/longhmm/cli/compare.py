"""`longhmm compare`: how many states the data support."""

import contextlib
from functools import partial
from typing import Annotated

from typer import Option

from longhmm import samplers
from longhmm.cli import options
from longhmm.cli.output import Output, guarded
from longhmm.errors import ModelError


@guarded
def compare(
    recordings: options.Recordings,
    states: Annotated[str, Option(help="Numbers of states: a range 1..5 or a list 2,3,5.", show_default=False)],
    held_out: Annotated[
        float, Option(min=0.01, max=0.9, help="Share of the recording, at its end, on which models are judged.")
    ] = 0.1,
    column: options.Columns = None,
    dataset: options.Dataset = None,
    decimate: options.Decimate = 1,
    log: options.Log = False,
    detrend: options.Detrend = False,
    normalise: options.Normalise = False,
    emission: options.Emission = None,
    prior: options.Priors = None,
    stay: options.Stay = None,
    sampler: options.Sampler = options.AUTO,
    chains: options.Chains = 4,
    draws: options.Draws = 500,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Fit models with several numbers of states and rank them by how well they predict data they have not seen."""
    from longhmm.data.sequences import Sequences
    from longhmm.model.hmm import HMM
    from longhmm.posterior.compare import compare as rank
    from longhmm.posterior.posterior import Posterior
    from longhmm.run.sample import sample

    numbers = parse_states(states)
    said = Output(as_json)
    recording, _, data, guess = options.opened(
        recordings, dataset, column, emission, dict(decimate=decimate, log=log, detrend=detrend, normalise=normalise)
    )
    said.say(f"{recording.name}: {data.length:,} samples; emission: {guess.name} ({guess.reason})")
    build = partial(options.build_model, guess.name, data=data, priors=prior or [], stay=stay, held_out=held_out)
    models = {f"{n} state{'s' if n > 1 else ''}": build(n) for n in numbers}
    how = None if sampler == options.AUTO else samplers.from_name(sampler)

    def fitted(model: HMM, training: Sequences) -> Posterior:
        said.say(f"Fitting {model.n_states} state(s) ...")
        return sample(model, training, sampler=how, chains=chains, draws=draws, seed=seed, verdict=False)

    ranked = rank(models, data, held_out=held_out, fit=fitted)
    said.frame("Held-out log predictive density, the best first", ranked)
    said.say(
        "A difference below twice its error is no reason to prefer the larger model; more states than the data need "
        "often describe noise."
    )
    said.result({"recording": recording.name, "held_out": held_out, "emission": guess.name, "models": ranked})


def parse_states(text: str) -> list[int]:
    """`1..5` or `2,3,5` as numbers of states."""
    with contextlib.suppress(ValueError):
        found = [int(part) for part in text.replace("..", ",").split(",")]
        if ".." in text:
            first, last = found
            found = list(range(first, last + 1))
        if found and min(found) >= 1 and max(found) <= 1000 and len(set(found)) == len(found):
            return found
    raise ModelError(f"--states must be a range such as 1..5 or a list such as 2,3,5, got {text!r}.")
