"""The recording that a command was given, and what is done to it before it is modelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import Sequences, open_data
from longhmm.data.sources import EXAMPLE
from longhmm.errors import DataError


def located(recordings: list[str]) -> list[str]:
    """Absolute paths, so that a run finds its data from anywhere; addresses and examples as they are."""
    return [
        each if "://" in each or each.startswith(EXAMPLE) else str(Path(each).expanduser().absolute())
        for each in recordings
    ]


def chosen_columns(given: list[str] | None) -> list[str | int] | None:
    """Columns by name, or by number where the text is one."""
    return [int(each) if each.isdigit() else each for each in given] if given else None


def open_recordings(recordings: list[str], dataset: str | None, columns: list[str | int] | None) -> Sequences:
    """The recording as it lies in its files."""
    where: Any = located(recordings)
    return open_data(where[0] if len(where) == 1 else where, dataset=dataset, columns=columns)


def steps_of(*, decimate: int, log: bool, detrend: bool, normalise: bool, sequences: Sequences) -> Preprocessing:
    """Preprocessing with its numbers measured on this recording."""
    if decimate >= sequences.length:
        raise DataError(f"--decimate must be below the {sequences.length} samples of {sequences.name}, got {decimate}.")
    return Preprocessing(decimate=decimate, log=log, detrend=detrend, normalise=normalise).measured(sequences)


def checked_rate(given: float | None, sequences: Sequences) -> float | None:
    """Samples per second: what the user says, or else what the file says."""
    if given is not None and not given > 0:
        raise DataError(f"--rate must be a positive number of samples per second, got {given:g}.")
    return sequences.rate if given is None else given
