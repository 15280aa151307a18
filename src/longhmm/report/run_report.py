"""The page of a run on disk, with its recording if that is still where it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, LongHMMError
from longhmm.posterior.posterior import load
from longhmm.posterior.run_directory import REQUEST, RunDirectory
from longhmm.report.page import write_page
from longhmm.report.subject import Subject, look

PAGE = "report.html"


def write_report(run_dir: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, data: Any = None) -> Path:
    """Write the page of a run, by default to `report.html` in its directory, and return where it is.

    Args:
        run_dir: a directory that `longhmm fit` or `Posterior.save` made.
        out: the file to write.
        data: the recording, if it is not where it was; without it the page has no trace.
    """
    subject = open_run(run_dir, data)
    return write_page(subject, Path(run_dir) / PAGE if out is None else Path(out))


def open_run(run_dir: str | os.PathLike[str], data: Any = None) -> Subject:
    """A run and its recording, decoded; a recording that was asked for by name must be there."""
    place = Path(run_dir)
    if not (place / REQUEST).is_file():
        return _saved_posterior(place, data)
    run = RunDirectory.open(place)
    posterior, steps, remarks = run.posterior(), run.preprocessing, []
    sequences: Sequences | None
    try:
        sequences = run.data(data)
    except (LongHMMError, OSError) as error:
        if data is not None:
            raise
        sequences = None
        remarks.append(f"The recording is not shown, since it cannot be read: {error}")
    if not steps.changes_nothing:
        remarks.append(f"Before it was fitted the recording was changed: {_described(steps.to_dict())}.")
    changed = steps.log or steps.normalise
    names = [Path(str(each)).name for each in run.request["recordings"]]
    title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return look(
        posterior, sequences, title=title, rate=run.model_rate, unit=run.unit,
        undo=steps.in_file_units if changed else None, remarks=remarks,
    )  # fmt: skip


def _saved_posterior(place: Path, data: Any) -> Subject:
    """A directory of `Posterior.save`, which knows no more of its data than the name they had."""
    from longhmm.data.sequences import open_data

    posterior = load(place)
    described = posterior.settings.get("data")
    name = str(described.get("name", "")) if isinstance(described, dict) else ""
    remarks = []
    sequences = None
    if data is not None:
        sequences = open_data(data)
    elif name and Path(name).is_absolute() and Path(name).exists():
        try:
            sequences = open_data(name)
        except DataError as error:
            remarks.append(f"The recording is not shown, since it cannot be read: {error}")
    if sequences is None and not remarks:
        remarks.append("The recording is not shown: the run does not say where it is. Give it as a second argument.")
    rate = getattr(sequences, "rate", None)
    unit = getattr(sequences, "unit", None)
    return look(posterior, sequences, title=Path(name).name or place.name, rate=rate, unit=unit, remarks=remarks)


def _described(steps: dict[str, Any]) -> str:
    said = []
    if steps.get("decimate", 1) > 1:
        said.append(f"one sample in {steps['decimate']} was kept")
    for key, words in (("log", "logarithms were taken"), ("detrend", "a slow trend was subtracted")):
        if steps.get(key):
            said.append(words)
    if steps.get("normalise"):
        said.append("it was centred and scaled")
    return "; ".join(said)
