"""Two runs on one page, side by side: their verdicts, recordings that move together, their states, and where decoded
paths differ."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from longhmm.errors import DataError
from longhmm.posterior.store import Place, write_text
from longhmm.report import findings, plots
from longhmm.report.html import Safe, document, element, hint, join, picture, section, state_label, table
from longhmm.report.outline import verdict_box
from longhmm.report.page import ADVICE
from longhmm.report.recording import packed
from longhmm.report.stages import in_stages
from longhmm.report.subject import Subject
from longhmm.report.viewer import open_run

SIDES = ("left", "right")


def write_side_by_side(
    run_dir: Place, other: Place, out: Place | None = None, data: Any = None, *, progress: bool = True
) -> Path:
    """Write one page with two runs, by default to `beside-NAME.html` in the first, and return where it is.

    Args:
        run_dir: a directory that `longhmm fit` or `Posterior.save` made.
        other: the run to show beside it, named NAME. Two runs of one recording move together, and their paths are
            compared.
        out: the file to write.
        data: the recording, if it is not where it was, for both.
        progress: show what is being done, if it takes longer than a moment.
    """
    runs = [Path(each).absolute() for each in (run_dir, other)]
    if runs[0] == runs[1]:
        raise DataError(f"beside must be another run than {run_dir}, got the same.")
    with in_stages(progress):
        subjects = {name: open_run(run, data) for name, run in zip(_names(*runs), runs, strict=True)}
        place = runs[0] / f"beside-{runs[1].name}.html" if out is None else Path(out)
        write_text(place, build_side_by_side(subjects), "choose another place for the page")
    return place


def _names(first: Path, second: Path) -> list[str]:
    """The directories, with as much of the way to them as tells them apart."""
    ends = zip(reversed(first.parts), reversed(second.parts), strict=False)
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    return ["/".join(run.parts[-alike - 1 :]) for run in (first, second)]


def build_side_by_side(subjects: dict[str, Subject]) -> str:
    """The page as HTML, of two subjects by name; it loads nothing."""
    title = " beside ".join(subjects)
    columns = [_column(side, *each) for side, each in zip(SIDES, subjects.items(), strict=True)]
    recordings = {side: packed(subject, False) for side, subject in zip(SIDES, subjects.values(), strict=True)}
    body = [
        element("h1", title),
        element("p", " and ".join(dict.fromkeys(each.title for each in subjects.values())), class_="facts"),
        element("div", join(columns), class_="runs"),
        section("h2", "Where they differ", differences(subjects)),
        element("footer", "Made by longhmm. This file is complete: it loads nothing from elsewhere."),
    ]
    return document(title, join(body), recordings, False)


def _column(side: str, name: str, subject: Subject) -> Safe:
    """One run: verdict, recording, states, and the pictures that tell models apart."""
    posterior, data, events = subject.posterior, subject.data, subject.events
    model = posterior.model
    head = [
        element("h2", name),
        element("p", f"{model.n_states} states, {model.emission.name} emission", class_="facts"),
        verdict_box(*ADVICE[subject.verdict.kind], subject.verdict.reason, name=f"verdict-{side}"),
        *(element("p", note) for note in subject.notes),
    ]
    inside = [] if data is None else [findings.trace_block(subject, side)]
    inside.append(section("h3", "States", findings.state_table(subject)))
    if data is not None and subject.found is not None:
        unit = subject.model_unit
        inside.append(picture("amplitudes", lambda: plots.amplitudes(posterior, data, unit=unit), side))
    if events is not None:
        inside.append(picture("dwell", lambda: plots.dwell_times(posterior, events, rate=subject.rate), side))
    parts = (
        element("div", join(each)) for each in (head, inside)
    )  # the second begins where that of the other run does
    return element("section", join(parts), class_="run", aria_label=name)


def differences(subjects: dict[str, Subject]) -> Safe:
    """How many samples the two paths give to each pair of states."""
    from scipy.optimize import linear_sum_assignment

    first, second = (subject.found for subject in subjects.values())
    if first is None or second is None or len(first.path) != len(second.path):
        return hint("Paths are compared where both runs have decoded one recording, sample by sample.")
    counts = shared(first.path, second.path, *(each.posterior.model.n_states for each in subjects.values()))
    kept = counts[linear_sum_assignment(counts, maximize=True)].sum() / counts.sum()
    names = list(subjects)
    said = (
        f"Rows are states of {names[0]}, columns those of {names[1]}; each cell counts the samples that both give to "
        f"this pair. With states paired one to one as well as they can be, {findings.percent(kept)} of the samples "
        "agree."
    )
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = [
        [state_label(a), *(_cell(int(counts[a, b]), float(shares[a, b])) for b in range(counts.shape[1]))]
        for a in range(len(counts))
    ]
    head = [f"{names[0]} \\ {names[1]}", *map(str, range(counts.shape[1]))]
    return join([element("p", said), table(head, rows, "states of both")])


def shared(first: np.ndarray, second: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """`(rows, columns)`: samples that one path gives to the row's state and the other to the column's."""
    pairs = first.astype(np.int64) * columns + second
    return np.bincount(pairs, minlength=rows * columns).reshape(rows, columns)


def _cell(count: int, share: float) -> Safe:
    return element("td", f"{count:,}", class_="heat", style=f"--heat:{np.sqrt(share):.2f}")
