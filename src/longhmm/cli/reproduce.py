"""`longhmm reproduce` and `longhmm simulate`: the paper's experiments, and data from its models of any length."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from longhmm.cli import options
from longhmm.cli.output import Output, guarded
from longhmm.errors import DataError, LongHMMError

EXPERIMENTS = ["dd", "rc", "rc-hard", "lognormal", "ion", "variational", "all"]
SCALES = ["tiny", "small", "paper"]
PUBLISHED = ["rc", "dd", "rc-hard", "lognormal"]


@guarded
def reproduce(
    name: Annotated[str, Argument(**options.one_of(EXPERIMENTS.copy), help="Which experiment.", show_default=False)],
    scale: Annotated[
        str,
        Option(
            **options.one_of(SCALES.copy),
            help="paper: the published sizes; small: minutes; tiny: seconds, only to see that it runs.",
        ),
    ] = "paper",
    out: Annotated[Path | None, Option(help="Folder for figures and tables.", show_default="./runs/NAME-SCALE")] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Run the experiments of Ma, Foti and Fox (2017) again, and say which of their claims hold.

    `ion` reads the paper's recording where the environment variable LONGHMM_ALAMETHICIN names the file alamethicin.mat.
    Otherwise it takes substitutes: the nanopore that comes with longhmm, and the Deep-Channel records if their folder
    deep_channel lies in the one that LONGHMM_RECORDINGS names (by default ../shared/data, seen from a checkout).
    """
    needs_reproduction()
    from longhmm_reproduction.command import reproduce as again

    again(Output(as_json), name, scale, Path("runs") / f"{name}-{scale}" if out is None else out, seed)


@guarded
def simulate(
    name: Annotated[str, Argument(**options.one_of(PUBLISHED.copy), help="Which model.", show_default=False)],
    length: Annotated[int, Option(min=1, help="Number of observations.", show_default=False)],
    out: Annotated[Path, Option(help="File for the observations, .npy.", show_default=False)],
    states: Annotated[Path | None, Option(help="File for the true states, .npy.")] = None,
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


def needs_reproduction() -> None:
    """A clear sentence where the paper's models and experiments, a package of their own, were not installed."""
    if find_spec("longhmm_reproduction") is None:
        missing = "the paper's models and runs are in the package longhmm_reproduction, which is not installed here"
        raise LongHMMError(f"{missing}; install longhmm from its wheel or from a checkout.")
