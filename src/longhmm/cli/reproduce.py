"""`longhmm reproduce`: the experiments of the paper from the seed to figures and a table."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from longhmm.cli import options
from longhmm.cli.output import Output, guarded, plain
from longhmm.errors import LongHMMError

EXPERIMENTS = ["dd", "rc", "rc-hard", "lognormal", "ion", "variational", "all"]
SCALES = ["tiny", "small", "paper"]


@guarded
def reproduce(
    name: Annotated[
        str, typer.Argument(**options.one_of(EXPERIMENTS.copy), help="Which experiment.", show_default=False)
    ],
    scale: Annotated[
        str,
        typer.Option(
            **options.one_of(SCALES.copy),
            help="paper: the published sizes; small: minutes; tiny: seconds, only to see that it runs.",
        ),
    ] = "paper",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for figures, table and curves.", show_default="./runs/NAME-SCALE"),
    ] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Run the experiments of Ma, Foti and Fox (2017) again, and say which of their claims hold.

    `ion` reads the paper's recording where the environment variable LONGHMM_ALAMETHICIN names the file alamethicin.mat.
    Otherwise it takes substitutes: the nanopore that comes with longhmm, and the Deep-Channel records if their folder
    deep_channel lies in the one that LONGHMM_RECORDINGS names (by default ../shared/data, seen from a checkout).
    """
    needs_reproduction()
    from longhmm_reproduction import catalogue, claims
    from longhmm_reproduction.document import short
    from longhmm_reproduction.report import COLUMNS, write_report
    from longhmm_reproduction.summary import write_summary

    said = Output(as_json)
    names = catalogue.NAMES if name == "all" else (name,)
    folder = Path("runs") / f"{name}-{scale}" if out is None else out
    folder.mkdir(parents=True, exist_ok=True)  # a folder that cannot be written to is known before hours of computing
    outcomes = []
    for each in names:
        # At full size a run takes hours: what is finished is kept, and a run that was stopped goes on.
        keep = folder / "parts" if scale == "paper" else None
        found = catalogue.run(each, scale, seed, keep=keep)
        outcomes.append(found)
        write_report(found, folder)
        if keep is not None:
            shutil.rmtree(keep, ignore_errors=True)  # another run is to begin from the beginning
        rows = [
            [method, *(metrics.get(key, float("nan")) for key in COLUMNS)]
            for method, metrics in found["results"].items()
        ]
        said.table(f"{each}, {scale}", ["method", *COLUMNS.values()], rows)
        for claim in claims.judge(found):
            said.say(f"{claim.verdict}: {claim.sentence} ({claim.evidence})")
    write_summary(outcomes, folder)
    said.say(f"Figures, tables and curves: {folder}")
    if as_json:
        documents = [plain(short(found)) for found in outcomes]
        shown = documents if name == "all" else documents[0]
        sys.stdout.write(json.dumps(shown, allow_nan=False) + "\n")


def needs_reproduction() -> None:
    """A clear sentence where the paper's models and experiments, a package of their own, were not installed."""

    if find_spec("longhmm_reproduction") is None:
        raise LongHMMError(
            "the paper's models and experiments are in the package longhmm_reproduction, which is not installed here; "
            "install longhmm from its wheel or from a checkout."
        )
