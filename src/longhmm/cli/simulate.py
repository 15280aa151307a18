"""`longhmm simulate`: data from a published model, of any length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longhmm.cli import options
from longhmm.cli.output import Output, guarded
from longhmm.cli.reproduce import needs_reproduction
from longhmm.errors import DataError

PUBLISHED = ["rc", "dd", "rc-hard", "lognormal"]


@guarded
def simulate(
    name: Annotated[str, typer.Argument(**options.one_of(PUBLISHED.copy), help="Which model.", show_default=False)],
    length: Annotated[int, typer.Option(min=1, help="Number of observations.", show_default=False)],
    out: Annotated[Path, typer.Option(help="File for the observations, .npy.", show_default=False)],
    states: Annotated[Path | None, typer.Option(help="File for the true states, .npy.")] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Draw observations of a published model: diagonally dominant (dd), reversed cycles (rc, rc-hard) or log-normal.

    Written piece by piece, so that twenty million observations need little memory.
    """
    from longhmm.model.simulate import simulate_to_file

    needs_reproduction()
    from longhmm_reproduction import models

    for file in (out, states):
        if file is not None and options.in_a_folder(file).suffix != ".npy":
            raise DataError(f"{file} must end in .npy.")
    said = Output(as_json)
    model, params = getattr(models, name.replace("-", "_"))()
    simulate_to_file(model, params, length, out, states_file=states, seed=seed)
    said.say(f"{length:,} observations of {name}: {out}")
    if states is not None:
        said.say(f"States: {states}")
    said.result({"model": name, "length": length, "out": out, "states": states, "params": params})
