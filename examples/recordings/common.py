"""What the scripts on real recordings share: where the data lie, how much of them to use, where the picture goes."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

PROJECT = Path(__file__).resolve().parents[2]
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#9A6CE0", "#A67C00", "#C2478A", "#3D8FD1", "#7A7A7A")
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})


class Script:
    """One run of a script: options, files, picture and the sentence on what was learned."""

    def __init__(self, name: str, about: str, files: tuple[str, ...], observations: int) -> None:
        parser = argparse.ArgumentParser(description=about)
        parser.add_argument(
            "--data", type=Path, default=PROJECT / ".." / "shared" / "data", help="folder of recordings"
        )
        parser.add_argument("--observations", type=int, default=observations, help="how many to use, 0 for all")
        parser.add_argument("--out", type=Path, default=Path("runs/recordings"), help="folder for picture and sentence")
        options = parser.parse_args()
        self.name, self.out, self.began = name, options.out, time.monotonic()
        self.most = options.observations or sys.maxsize
        self.files = [options.data / file for file in files]
        missing = [file for file in self.files if not file.is_file()]
        if missing:
            print(f"{name}: no data at {missing[0]}; name their folder with --data. Nothing was done.")
            sys.exit(0)

    def finish(self, figure: Figure, sentence: str) -> None:
        """Save the picture, and print and keep the sentence."""
        self.out.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.out / f"{self.name}.png", dpi=110)
        (self.out / f"{self.name}.txt").write_text(sentence + "\n", encoding="utf-8")
        print(f"{sentence} ({time.monotonic() - self.began:.0f} s)")
