"""What the scripts on real recordings share: where the data lie, how much of them to use, what is written where."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import longhmm as lh
from longhmm_reproduction.channels import data_folder
from longhmm_reproduction.document import machine

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#9A6CE0", "#A67C00", "#C2478A", "#3D8FD1", "#7A7A7A")
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})


class Script:
    """One run of a script: options, files, picture and the sentences on what was learned.

    Attributes:
        files: the recordings, all of which exist.
        most: how many observations of each to use.
        draws: how many to keep of each chain.
    """

    def __init__(self, name: str, about: str, files: tuple[str, ...]) -> None:
        parser = argparse.ArgumentParser(description=about)
        parser.add_argument(
            "--data", type=Path, default=data_folder(), help="folder of recordings ($LONGHMM_RECORDINGS)"
        )
        parser.add_argument("--observations", type=_whole, help="use only so many of each recording (all)")
        parser.add_argument("--draws", type=_whole, default=1000, help="draws to keep of each chain (1000)")
        parser.add_argument(
            "--out", type=Path, default=Path("runs/recordings"), help="folder for NAME.png and NAME.json"
        )
        options = parser.parse_args()
        self.name, self.out, self.began = name, options.out, time.monotonic()
        self.most, self.draws = options.observations or sys.maxsize, options.draws
        self.files = [options.data / file for file in files]
        missing = [file for file in self.files if not file.is_file()]
        if missing:
            print(f"{name}: no data at {missing[0]}; name their folder with --data. Nothing was done.")
            sys.exit(0)

    def finish(self, figure: Figure, sentence: str, table: Sequence[Sequence[str]] = ()) -> None:
        """Save the picture, the sentences, a table (its header first) and what made them; print the sentences."""
        self.out.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.out / f"{self.name}.png", dpi=110)
        found = {
            "sentence": sentence,
            "table": table,
            "command": shlex.join(["python", f"examples/recordings/{self.name}.py", *sys.argv[1:]]),
            "seconds": round(time.monotonic() - self.began),
            "machine": machine(),
        }
        (self.out / f"{self.name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(*(" | ".join(row) for row in table), f"{sentence} ({found['seconds']} s)", sep="\n")


def spread(values: Any, form: str = ".3g") -> str:
    """Mean and central 90 % interval of draws, as in "3.1 (2.9 to 3.4)"."""
    lower, upper = np.quantile(values, (0.05, 0.95))
    return f"{format(float(np.mean(values)), form)} ({format(float(lower), form)} to {format(float(upper), form)})"


def verdict(posterior: lh.Posterior) -> str:
    """What the checks said, for the end of a sentence."""
    assert posterior.verdict is not None
    return f"{posterior.verdict.kind} ({posterior.verdict.reason.rstrip('.')})"


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)
