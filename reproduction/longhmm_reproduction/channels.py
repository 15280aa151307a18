"""Recordings of single channels for the experiment of that name, made ready by the paper's recipe.

The paper used a recording of alamethicin, `alamethicin.mat`. It is read where the environment variable
LONGHMM_ALAMETHICIN names it. Otherwise other channels take its place: the nanopore that comes with longhmm, and the
Deep-Channel records (gating simulated, replayed through a real amplifier) where the folder `deep_channel` is found in
the one that LONGHMM_RECORDINGS names, by default `../shared/data` as seen from a checkout of longhmm.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longhmm.datasets import nanopore
from longhmm.errors import DataError

ALAMETHICIN = "LONGHMM_ALAMETHICIN"
FOLDER = "LONGHMM_RECORDINGS"
# Files and numbers of levels. A fourth one of the set, with five channels, is left out: its amplifier ran into its
# limits, and a flat prior has no answer to many values that are exactly the same.
DEEP_CHANNEL = {"1ch_outfinaltest10": 2, "3ch_outfinaltest1": 4, "3ch_outfinaltest2": 4}


class Record(NamedTuple):
    """A recording made ready: where it is from, whether it stands in for the paper's, values, and states to fit."""

    name: str
    substitute: bool
    values: np.ndarray
    states: int
    decimation: int


class Records(NamedTuple):
    """What is there, and a sentence on what is not."""

    found: list[Record]
    missing: str | None


def prepare(values: np.ndarray, decimation: int) -> np.ndarray:
    """The paper's recipe: every n-th sample, logarithms where all are positive, mean 0 and standard deviation 1."""
    kept = np.asarray(values, np.float64).reshape(-1)[::decimation]
    kept = np.log(kept) if kept.min() > 0 else kept
    return ((kept - kept.mean()) / kept.std()).astype(np.float32)


def read_alamethicin(path: str | os.PathLike[str]) -> np.ndarray:
    """The unfiltered current, `originaldata`, of `alamethicin.mat`, as a series."""
    if not Path(path).is_file():
        raise DataError(f"{ALAMETHICIN} must name the file alamethicin.mat, got {os.fspath(path)!r}: no such file.")
    from scipy.io import loadmat

    stored = loadmat(path, variable_names=["originaldata"])
    if "originaldata" not in stored:
        raise DataError(f"{os.fspath(path)} must hold an array 'originaldata', which was not found.")
    return np.asarray(stored["originaldata"], np.float64).reshape(-1)


def records(most: int) -> Records:
    """The paper's recording where the user has it, otherwise its substitutes, `most` of them at most."""
    path = os.environ.get(ALAMETHICIN)
    if path:
        return Records([Record("alamethicin", False, prepare(read_alamethicin(path), 50), 5, 50)], None)
    # Blockades last some 28 samples: taking every 50th would lose them, taking every 2nd keeps as many as the paper.
    found = [Record("nanopore", True, prepare(nanopore().values, 2), 2, 2)]
    folder = data_folder() / "deep_channel"
    for name, states in list(DEEP_CHANNEL.items())[: most - 1]:
        file = folder / f"{name}.npz"
        if not file.is_file():
            return Records(found, f"no Deep-Channel record {file.name} was found; {FOLDER} names the folder to look in")
        with np.load(file, allow_pickle=False) as stored:
            # Three channels stay but four samples in a level: every sample counts.
            found.append(Record(name.replace("ch_outfinaltest", "ch-"), True, prepare(stored["current"], 1), states, 1))
    return Records(found, None)


def data_folder() -> Path:
    """Where recordings that do not come with longhmm are looked for."""
    checkout = Path(__file__).resolve().parents[2]
    return Path(os.environ.get(FOLDER) or checkout.parent / "shared" / "data")
