"""The page: one file that carries everything it shows, and asks nobody for anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.report import certainty, findings
from longhmm.report.html import document, element, hint, join
from longhmm.report.subject import Subject, data_name, look, pack_recording

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior


def report(
    posterior: Posterior, data: Any, path: str | os.PathLike[str], rate: float | None, unit: str, title: str | None
) -> Path:
    """See `Posterior.report`."""
    sequences = None if data is None else open_data(data)
    name = title or data_name(posterior) or "A posterior"
    return write_page(look(posterior, sequences, title=name, rate=rate, unit=unit), Path(path))


def write_page(subject: Subject, place: Path) -> Path:
    """Write the page beside its place and move it there when it is whole."""
    page = build_page(subject)
    fresh = place.with_name(f".{place.name}.new")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(page, encoding="utf-8")
        os.replace(fresh, place)
    except OSError as error:
        raise DataError(f"{place} cannot be written ({error.strerror}); choose another place for the page.") from None
    return place


def build_page(subject: Subject, *, live: bool = False) -> str:
    """The page as HTML. A live one asks its own server for a closer look at the recording, and nobody else."""
    body = [
        element("h1", subject.title),
        element("p", _facts(subject), class_="facts"),
        certainty.verdict_box(subject),
        element("h2", "What was found"),
        findings.cards(subject),
        findings.in_words(subject),
        *(element("p", note) for note in subject.notes),
    ]
    stored: Any = None
    if subject.data is not None:
        stored = pack_recording(
            subject.data, subject.found, subject.levels, rate=subject.rate, unit=subject.model_unit, live=live
        )
        body += [element("h3", "The recording"), findings.trace_block(subject)]
    body += [
        element("h3", "States"),
        findings.state_table(subject),
        hint("Small numbers are 90 % intervals."),
        element("h3", "Transition probabilities per sample"),
        findings.transition_table(subject),
        findings.pictures_found(subject),
    ]
    if subject.events is not None:
        body += [element("h3", "Events"), findings.event_block(subject)]
    body += [
        element("h2", "How sure"),
        certainty.sure(subject),
        element("h2", "Diagnostics"),
        certainty.diagnostics(subject),
        element("h2", "How it was made"),
        certainty.made(subject),
        element("footer", "Made by longhmm. This file is complete: it loads nothing from elsewhere."),
    ]
    return document(subject.title, join(body), stored, live)


def _facts(subject: Subject) -> str:
    model = subject.posterior.model
    parts = [f"Hidden Markov model with {model.n_states} states, {model.emission.name} emission"]
    sampler = subject.posterior.settings.get("sampler")
    if isinstance(sampler, str):
        parts.append(sampler)
    if subject.rate:
        parts.append(f"{subject.rate:,.6g} samples per second")
    return " · ".join(parts)
