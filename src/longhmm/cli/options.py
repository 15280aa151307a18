"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from longhmm.model.emissions import registry

READING, MODEL, SAMPLING = "Reading the recording", "The model", "Sampling"


def emission_name(text: str) -> str:
    """The name of a registered emission, or one sentence that lists them."""
    if text not in registry.names():
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(registry.names())}.")
    return text


class SamplerName(StrEnum):
    """Samplers that work without tuning by hand."""

    auto = "auto"
    sgld_cv = "sgld-cv"
    nuts = "nuts"
    hmc = "hmc"
    gibbs = "gibbs"
    sgrld = "sgrld"


Recordings = Annotated[
    list[str],
    typer.Argument(
        help="Files: npy, zarr, csv, abf and more (`longhmm doctor` lists them). Several are several sequences. "
        "'example:nanopore' is the one that comes with longhmm.",
        show_default=False,
        metavar="RECORDING...",
    ),
]
Run = Annotated[Path, typer.Argument(help="The directory that `longhmm fit --out` made.", show_default=False)]
Moved = Annotated[
    list[str] | None,
    typer.Argument(help="The recording, if it is no longer where it was.", metavar="RECORDING..."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, all else on standard error.")
]
Seed = Annotated[int, typer.Option(help="Equal seeds give equal results.", min=0)]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        "--channel",
        help="Column or channel to use, by name or by number from 0; repeat it for several.",
        rich_help_panel=READING,
    ),
]
Dataset = Annotated[
    str | None, typer.Option(help="Array to use inside a file that holds several.", rich_help_panel=READING)
]
Rate = Annotated[
    float | None,
    typer.Option(help="Samples per second, where the file does not say (or is wrong).", rich_help_panel=READING),
]
Decimate = Annotated[
    int,
    typer.Option(
        min=1,
        help="Keep every n-th sample. The others are left out rather than averaged: an average across a change of "
        "state lies between the levels, at a value that no state has.",
        rich_help_panel=READING,
    ),
]
Log = Annotated[bool, typer.Option("--log", help="Take logarithms; values must be positive.", rich_help_panel=READING)]
Detrend = Annotated[
    bool,
    typer.Option(
        "--detrend",
        help="Subtract a straight line, laid through medians so that short events do not bend it.",
        rich_help_panel=READING,
    ),
]
Normalise = Annotated[
    bool,
    typer.Option(
        "--normalise", help="Subtract the mean and divide by the standard deviation.", rich_help_panel=READING
    ),
]
Emission = Annotated[
    str | None,
    typer.Option(
        parser=emission_name,
        metavar=f"[{'|'.join(registry.names())}]",
        help="Noise around each state; by default guessed from the data.",
        rich_help_panel=MODEL,
    ),
]
Priors = Annotated[
    list[str] | None,
    typer.Option(
        "--prior",
        help="Prior or fixed value of a parameter, such as 'loc=Normal(50, 20)', 'scale=HalfNormal(5)' or 'df=4'; "
        "lists give one number per state. Repeat it for several.",
        rich_help_panel=MODEL,
    ),
]
Stay = Annotated[
    float | None,
    typer.Option(
        help="Prior weight of staying in a state, in observations (moving has 1); by default 1.", rich_help_panel=MODEL
    ),
]
Chains = Annotated[int, typer.Option(min=1, help="Independent chains.", rich_help_panel=SAMPLING)]
Draws = Annotated[int, typer.Option(min=1, help="Draws kept of each chain.", rich_help_panel=SAMPLING)]
Sampler = Annotated[
    SamplerName,
    typer.Option(help="auto chooses between windows and exact passes by cost.", rich_help_panel=SAMPLING),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which drawing stops with the draws so far; `resume` goes on from there.",
        rich_help_panel=SAMPLING,
    ),
]
