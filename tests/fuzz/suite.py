"""All cases by number, and what became of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from fuzz.arrays import array_case
from fuzz.files import file_case
from fuzz.fits import fit_case
from fuzz.options import option_case
from fuzz.outcome import SECONDS, Case, judge
from fuzz.runs import run_case

# Kinds that need little or no compilation, with how many cases there are of each.
QUICK: dict[str, tuple[Callable[[int], Case], int]] = {
    "arrays": (array_case, 400),
    "files": (file_case, 400),
    "run directories": (run_case, 140),
    "options": (option_case, 160),
}
SLOW: dict[str, tuple[Callable[[int], Case], int]] = {"fits": (fit_case, 45)}
COMPILED_SECONDS = 300  # for a case that compiles programs: on a busy machine that takes minutes


def seconds_for(kind: str) -> int:
    """After how long a case of some kind counts as one that hangs."""
    return COMPILED_SECONDS if kind in SLOW or kind == "run directories" else SECONDS


class Result(NamedTuple):
    """How many cases there were, how many worked or ended in a sentence, and what was lost."""

    cases: int
    worked: int
    sentences: int
    lost: list[str]


def run_suite(make: Callable[[int], Case], seeds: Iterable[int], seconds: int = SECONDS) -> Result:
    """Run cases one after the other, each in a folder of its own."""
    counts = {"worked": 0, "sentence": 0, "lost": 0}
    lost = []
    for seed in seeds:
        case = make(seed)
        with tempfile.TemporaryDirectory() as folder:
            kind, said = judge(case, Path(folder), seconds)
        counts[kind] += 1
        if kind == "lost":
            lost.append(f"{case.name}: {said}")
    return Result(sum(counts.values()), counts["worked"], counts["sentence"], lost)
