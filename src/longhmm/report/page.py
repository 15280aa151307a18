"""The page: one file that carries everything it shows, and asks nobody for anything.

`findings` has what was found; here are the verdict in words, how sure it is, the diagnostics, and how it was made.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longhmm.data.sequences import open_data
from longhmm.errors import DataError
from longhmm.report import findings, plots
from longhmm.report.html import Safe, document, element, hint, join, picture, row_head, table
from longhmm.report.plots.style import digits_for, number
from longhmm.report.subject import Subject, data_name, pack_recording

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

MOST_ROWS = 60
BLOCKS = 400


class Advice(NamedTuple):
    """How a verdict is shown: "good", "care" or "bad", its sign, its title, and what to do."""

    tone: str
    sign: str
    title: str
    meaning: str


ADVICE = {
    "trust": Advice(
        "good", "✓", "The result can be trusted",
        "The chains agree, their draws satisfy the exact gradients, and the model describes the data. The numbers and "
        "intervals below can be used as they are.",
    ),
    "run longer": Advice(
        "care", "…", "Run it longer",
        "There are too few independent draws to be sure of the intervals. Ask for more draws, or let the run go on; "
        "what is shown here is provisional.",
    ),
    "biased": Advice(
        "bad", "!", "Some numbers are off",
        "Exact gradients at the draws show that the named quantity is shifted or its interval has the wrong width. "
        "Levels and events far from that quantity may still be right. Use more draws, or an exact sampler.",
    ),
    "the model does not fit": Advice(
        "bad", "!", "The model does not describe these data",
        "The levels and events can still be a fair picture, but the intervals do not have the width they should have. "
        "Look at the predictive check and at the dwell times below, and try what the sentence above suggests.",
    ),
    "another mode is as good": Advice(
        "bad", "!", "There is another explanation that is as good",
        "The data can be explained in more than one way, and the draws show only what their chains found. Compare the "
        "alternatives; fewer states often remove the ambiguity.",
    ),
    "chains agree, rest unchecked": Advice(
        "care", "?", "The chains agree; the rest was not checked",
        "Whether the draws are biased and whether the model fits can be said only with the recording. "
        "Run posterior.diagnose(data) and save the run again.",
    ),
}  # fmt: skip

DETAILS = {
    "r_hat": ("agreement of the chains (R-hat)", "at most 1.01"),
    "ess": ("effective number of draws", "at least 400"),
    "shift": ("shift of a mean, in posterior sd", "within ±0.1"),
    "sd_ratio": ("width of an interval, relative to the right one", "0.9 to 1.1"),
    "sandwich": ("scatter of the data, relative to what the posterior allows", "at most 1.5"),
    "autocorrelation": ("correlation of neighbouring residuals", "within ±0.1"),
    "residual_distance": ("error of the probabilities of observations", "at most 0.02, or not beyond chance"),
    "residual_tails": ("share of observations beyond four standard deviations", "at most 0.001"),
    "dwell": ("error of the chance to leave a state, by time since entry", "at most 0.1, or not beyond chance"),
}


def report(
    posterior: Posterior, data: Any, path: str | os.PathLike[str], rate: float | None, unit: str, title: str | None
) -> Path:
    """See `Posterior.report`."""
    sequences = None if data is None else open_data(data)
    name = title or data_name(posterior) or "A posterior"
    return write_page(Subject(posterior, sequences, name, rate, unit), Path(path))


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
    model, sampler, stored = subject.posterior.model, subject.posterior.settings.get("sampler"), None
    facts = [f"Hidden Markov model with {model.n_states} states, {model.emission.name} emission"]
    facts += [sampler] if isinstance(sampler, str) else []
    facts += [f"{subject.rate:,.6g} samples per second"] if subject.rate else []
    body = [
        element("h1", subject.title),
        element("p", " · ".join(facts), class_="facts"),
        verdict_box(subject),
        element("h2", "What was found"),
        findings.cards(subject),
        findings.in_words(subject),
        *(element("p", note) for note in subject.notes),
    ]
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
        sure(subject),
        element("h2", "Diagnostics"),
        diagnostics(subject),
        element("h2", "How it was made"),
        made(subject),
        element("footer", "Made by longhmm. This file is complete: it loads nothing from elsewhere."),
    ]
    return document(subject.title, join(body), stored, live)


def verdict_box(subject: Subject) -> Safe:
    said, reason = ADVICE[subject.verdict.kind], subject.verdict.reason
    inside = [
        element("div", said.sign, class_="sign", aria_hidden="true"),
        element("h2", said.title, id="verdict"),
        element("div", join([element("p", reason[:1].upper() + reason[1:]), hint(said.meaning)]), class_="text"),
    ]
    return element("section", join(inside), class_=f"verdict {said.tone}", aria_labelledby="verdict")


def parameter_table(subject: Subject) -> Safe:
    summary = subject.posterior.summary()
    low, high = summary.columns[2:4]
    rows = []
    for name, row in summary.head(MOST_ROWS).iterrows():
        digits = digits_for(row[low], row[high])
        cells: list[object] = [row_head(str(name)), number(row["mean"], digits), number(row["sd"], 2)]
        cells += [number(row[end], digits) for end in (low, high)]
        cells.append(_flagged(row["r_hat"], ".3f", row["r_hat"] > 1.01))
        cells += [_flagged(row[size], ",.0f", row[size] < 400) for size in ("ess_bulk", "ess_tail")]
        rows.append(cells)
    found = table(["parameter", "mean", "sd", low, high, "R-hat", "ESS bulk", "ESS tail"], rows, "parameters")
    if len(summary) > MOST_ROWS:
        return join([found, hint(f"The first {MOST_ROWS} of {len(summary)}; posterior.summary() has them all.")])
    return found


def _flagged(value: float, form: str, wrong: bool) -> Safe:
    shown = format(value, form) if np.isfinite(value) else "–"
    if not wrong:
        return element("td", shown)
    return element("td", Safe(f"{shown} <span aria-label='outside the limit'>▲</span>"), class_="flag")


def sure(subject: Subject) -> Safe:
    words = (
        "Every number comes with the interval that holds it with 90 % probability, given the model. Intervals "
        "know nothing of a wrong model: that is what the verdict is for."
    )
    caption = "Median (dot), 50 % (thick) and 90 % (thin) intervals, with mean ± sd in numbers."
    forest = picture(lambda: plots.forest(subject.posterior), "forest", caption, wide=True)
    return join([element("p", words), forest, element("h3", "All parameters"), parameter_table(subject)])


def checks_table(subject: Subject) -> Safe:
    details = subject.verdict.details
    rows = []
    for key, (meaning, limit) in DETAILS.items():
        if key in details:
            error = details.get(f"{key}_error")
            shown = number(float(details[key]), 3) + (f" ± {number(float(error), 2)}" if error is not None else "")
            rows.append([row_head(meaning), shown, limit, str(details.get(f"{key}_of", ""))])
    if not rows:
        return hint("The checks left no numbers.")
    return table(["check", "value", "should be", "worst for"], rows, "checks behind the verdict")


def diagnostics(subject: Subject) -> Safe:
    posterior, data = subject.posterior, subject.data
    pictures = {
        "Chains": picture(
            lambda: plots.chain_traces(posterior, entries=4), "chains",
            "The parameters on which the chains agree least: every chain in its colour, and on the right its ranks "
            "among all draws. Chains that agree overlap on the left and stay near the dotted line on the right.",
            wide=True,
        )
    }  # fmt: skip
    if data is not None and subject.found is not None:
        pictures["Predictive check"] = picture(
            lambda: plots.residual_check(posterior, data), "residuals",
            "Each observation against its prediction from those before. If the model is right the points lie on "
            "the line, and neighbouring residuals have nothing in common.",
            wide=True,
        )  # fmt: skip
        pictures["Buffer report"] = picture(
            lambda: plots.buffer_report(posterior, data, blocks=BLOCKS), "buffers",
            "What a window loses by not seeing the whole recording, by the length of its margin (the buffer).",
            wide=True,
        )  # fmt: skip
    parts = [element("h3", "The checks behind the verdict"), checks_table(subject)]
    return join([*parts, *(each for title, drawn in pictures.items() for each in (element("h3", title), drawn))])


def made(subject: Subject) -> Safe:
    """Notes and settings, so that the run can be understood and made again."""
    posterior = subject.posterior
    parts = []
    if posterior.notes or subject.notes:
        parts.append(element("ul", join(element("li", note) for note in (*subject.notes, *posterior.notes))))
    rows = [[row_head("model"), element("td", repr(posterior.model), class_="wordy")]]
    for key, value in posterior.settings.items():
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        rows.append([row_head(str(key)), element("td", shown[:600], class_="wordy")])
    inside = join([element("summary", "Settings and versions"), table(["setting", "value"], rows, "settings")])
    return join([*parts, element("details", inside)])
