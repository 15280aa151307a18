"""The second half of the page: how sure, and the diagnostics."""

from __future__ import annotations

import json

import numpy as np

from longhmm.report import plots
from longhmm.report.findings import picture, tried
from longhmm.report.html import Safe, element, join, table
from longhmm.report.plots.style import digits_for, number
from longhmm.report.subject import Subject
from longhmm.report.words import DETAILS

MOST_ROWS = 60
CELLS = 400


def parameter_table(subject: Subject) -> Safe:
    summary = subject.posterior.summary()
    low, high = summary.columns[2:4]
    rows = []
    for name, row in summary.head(MOST_ROWS).iterrows():
        digits = digits_for(row[low], row[high])
        cells: list[object] = [element("th", str(name), scope="row")]
        cells += [
            number(row["mean"], digits),
            number(row["sd"], 2),
            number(row[low], digits),
            number(row[high], digits),
        ]
        cells.append(_flagged(f"{row['r_hat']:.3f}" if np.isfinite(row["r_hat"]) else "–", row["r_hat"] > 1.01))
        cells += [_flagged(f"{row[each]:,.0f}" if np.isfinite(row[each]) else "–", row[each] < 400) for each in _SIZES]
        rows.append(cells)
    found = table(["parameter", "mean", "sd", low, high, "R-hat", "ESS bulk", "ESS tail"], rows, "parameters")
    if len(summary) > MOST_ROWS:
        more = f"The first {MOST_ROWS} of {len(summary)}; posterior.summary() has them all."
        return join([found, element("p", more, class_="hint")])
    return found


_SIZES = ("ess_bulk", "ess_tail")


def _flagged(shown: str, wrong: bool) -> Safe:
    return (
        element("td", Safe(f"{shown} <span aria-label='outside the limit'>▲</span>"), class_="flag")
        if wrong
        else element("td", shown)
    )


def sure(subject: Subject) -> Safe:
    return join(
        [
            element(
                "p",
                "Every number comes with the interval that holds it with 90 % probability, given the model. Intervals "
                "know nothing of a wrong model: that is what the verdict is for.",
            ),
            picture(
                plots.forest(subject.posterior),
                "forest",
                "Median (dot), 50 % (thick) and 90 % (thin) intervals, with mean ± sd in numbers.",
                wide=True,
            ),
            element("h3", "All parameters"),
            parameter_table(subject),
        ]
    )


def checks_table(subject: Subject) -> Safe:
    details = subject.verdict.details
    rows = []
    for key, (meaning, limit) in DETAILS.items():
        if key not in details:
            continue
        value = float(details[key])
        error = details.get(f"{key}_error")
        shown = number(value, 3) + (f" ± {number(float(error), 2)}" if error is not None else "")
        rows.append([element("th", meaning, scope="row"), shown, limit, str(details.get(f"{key}_of", ""))])
    if not rows:
        return element("p", "The checks left no numbers.", class_="hint")
    return table(["check", "value", "should be", "worst for"], rows, "checks behind the verdict")


def diagnostics(subject: Subject) -> Safe:
    parts = [element("h3", "The checks behind the verdict"), checks_table(subject), element("h3", "Chains")]
    parts.append(
        picture(
            plots.chain_traces(subject.posterior, entries=4),
            "chains",
            "The parameters on which the chains agree least: every chain in its colour, and on the right its ranks "
            "among all draws. Chains that agree overlap on the left and stay near the dotted line on the right.",
            wide=True,
        )
    )
    data = subject.data
    if data is not None and subject.found is not None:
        parts.append(element("h3", "Predictive check"))
        parts.append(
            tried(
                lambda: plots.residual_check(subject.posterior, data),
                "residuals",
                "Each observation against its prediction from those before. If the model is right the points lie on "
                "the line, and neighbouring residuals have nothing in common.",
                wide=True,
            )
        )
        parts.append(element("h3", "Buffer report"))
        parts.append(
            tried(
                lambda: plots.buffer_report(subject.posterior, data, cells=CELLS),
                "buffer report",
                "What a window loses by not seeing the whole recording, by the length of its margin (the buffer).",
                wide=True,
            )
        )
    return join(parts)


def made(subject: Subject) -> Safe:
    """Notes and settings, so that the run can be understood and made again."""
    posterior = subject.posterior
    parts = []
    if posterior.notes or subject.remarks:
        parts.append(element("ul", join(element("li", note) for note in (*subject.remarks, *posterior.notes))))
    rows = [[element("th", "model", scope="row"), element("td", repr(posterior.model), class_="wordy")]]
    for key, value in posterior.settings.items():
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        rows.append([element("th", str(key), scope="row"), element("td", shown[:600], class_="wordy")])
    inside = join([element("summary", "Settings and versions"), table(["setting", "value"], rows, "settings")])
    return join([*parts, element("details", inside)])
