"""Options of models beyond the plain one, and the models that `longhmm compare` ranks: every number of states and every
scheme with each kind of noise, baseline and dwell times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from longhmm.cli.options import modelling
from longhmm.cli.schemes import Chain
from longhmm.errors import ModelError

if TYPE_CHECKING:
    from longhmm.model.hmm import HMM

Lags = Annotated[int | None, modelling(help="Rows of its own past on which a row depends; with --emission ar.")]
Noise = Annotated[str | None, modelling(help="Noise correlated about the level: ar:2, ma:3, ma:3,lags=12,common.")]
Response = Annotated[
    str | None, modelling(help="What is shown after a step: 0.3,0.8,1 or bessel:0.1, or 2 samples to find.")
]
Drift = Annotated[
    str | None, modelling(help="A slow baseline, of 20 intervals; 20,gain; 125,scale=0.2,returns for slow noise.")
]
Transitions = Annotated[str | None, modelling(help="Formula of covariates, columns of the file, such as '~ temp'.")]
Durations = Annotated[str | None, modelling(help="Dwell times: negative-binomial, gamma, free, phase-type; gamma:30.")]
Noises = Annotated[list[str] | None, modelling("--noise", help="As of `fit`, or none; repeat it to compare several.")]
Drifts = Annotated[list[str] | None, modelling("--drift", help="As of `fit`, or 0; repeat it to compare several.")]
DwellTimes = Annotated[
    list[str] | None, modelling("--durations", help="As of `fit`, or geometric; repeat it to compare several.")
]
WHITE, STILL, GEOMETRIC = "none", "0", "geometric"


def alternatives(
    chains: Sequence[Chain],
    noise: list[str] | None,
    drift: list[str] | None,
    durations: list[str] | None,
    build: Callable[..., HMM],
    say: Callable[[str], None],
) -> dict[str, HMM]:
    """By name, what `build(n_states, transitions=..., levels=..., noise=..., drift=..., durations=...)` makes; one
    state has no dwell times. What cannot be, as rates of a scheme and another distribution of dwell times, is left out
    where others are left, and said."""
    found: dict[str, HMM] = {}
    refused = None
    for chain, *own in itertools.product(chains, noise or [WHITE], drift or [STILL], durations or [GEOMETRIC]):
        usual = own[0] == WHITE, own[1] == STILL, own[2] == GEOMETRIC or chain.n_states == 1
        coloured, knots, lasting = (None if plain else each for plain, each in zip(usual, own, strict=True))
        name = ", ".join(filter(None, [chain.name, coloured, f"drift {knots}" if knots else None, lasting]))
        try:
            own_kinds = dict(noise=coloured, drift=knots, durations=lasting)
            found[name] = found.get(name) or build(chain.n_states, **chain.given, **own_kinds)
        except ModelError as error:
            if [chain.plain, coloured is None, lasting is None].count(False) < 2:
                raise
            refused = error
            say(f"Left out: {name}, since {error}")
    if refused is not None and not found:
        raise refused
    return found
