"""The page: one file that carries everything it shows, and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.report import certainty, findings
from longhmm.report.html import Safe, element, join, text
from longhmm.report.pack import pack_recording, ranges
from longhmm.report.subject import Subject, look

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

SCRIPTS = ("trace_data.js", "trace_view.js", "event_table.js")


def report(
    posterior: Posterior,
    data: Any = None,
    path: str | os.PathLike[str] = "report.html",
    *,
    rate: float | None = None,
    unit: str = "",
    title: str | None = None,
) -> Path:
    """See `Posterior.report`."""
    sequences = None if data is None else open_data(data)
    name = title or _data_name(posterior) or "A posterior"
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


def _data_name(posterior: Posterior) -> str:
    described = posterior.settings.get("data")
    return str(described.get("name", "")) if isinstance(described, dict) else ""


def build_page(subject: Subject, *, live: bool = False) -> str:
    """The page as HTML. A live one asks its own server for a closer look at the recording, and nobody else."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    body = [
        element("h1", subject.title),
        element("p", _facts(subject), class_="facts"),
        findings.verdict_box(subject),
        element("h2", "What was found"),
        findings.cards(subject),
        findings.in_words(subject),
        *(element("p", remark) for remark in subject.remarks),
    ]
    stored: Any = None
    if subject.data is not None:
        stored = pack_recording(
            subject.data, subject.found, ranges(subject.data, subject.levels), subject.levels,
            rate=subject.rate, unit=findings._model_unit(subject), live=live,
        )  # fmt: skip
        body += [element("h3", "The recording"), findings.trace_block(subject)]
    body += [element("h3", "States"), findings.state_table(subject)]
    body += [
        element("p", "Small numbers are 90 % intervals.", class_="hint"),
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
    return _document(subject.title, join(body), script, stored, live)


def _facts(subject: Subject) -> str:
    model = subject.posterior.model
    parts = [f"Hidden Markov model with {model.n_states} states, {model.emission.name} emission"]
    sampler = subject.posterior.settings.get("sampler")
    if isinstance(sampler, str):
        parts.append(sampler)
    if subject.rate:
        parts.append(f"{subject.rate:,.6g} samples per second")
    return " · ".join(parts)


def _document(title: str, body: Safe, script: str, stored: Any, live: bool) -> str:
    # Only this very script may run, and only a live page may ask for anything, from where it came itself.
    mark = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    own = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; script-src 'sha256-{mark}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {own}; base-uri 'none'; form-action 'none'"
    )
    data = "" if stored is None else f'<script type="application/json" id="recording">{_json(stored)}</script>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(title)} · longhmm</title>
<link rel="icon" href="data:,">
<style>
{_asset("page.css")}</style>
</head>
<body>
<main>
{body}
</main>
{data}
<script>{script}</script>
</body>
</html>
"""


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "").replace("\u2029", "")


def _asset(name: str) -> str:
    return (files("longhmm.report") / name).read_text(encoding="utf-8")
