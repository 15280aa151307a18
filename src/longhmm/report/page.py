"""The page, one file that carries all it shows: verdict, findings, how sure they are, and how they were made."""

import json
from pathlib import Path

import numpy as np

from longhmm.posterior.diagnostics.model_fit import CHECKS
from longhmm.posterior.store import write_text
from longhmm.report import drift, findings, plots
from longhmm.report.html import Safe, document, element, hint, join, picture, row_head, section, table
from longhmm.report.outline import verdict_box, with_contents
from longhmm.report.plots.emission_map import emission_table
from longhmm.report.plots.style import digits_for, number
from longhmm.report.recording import packed, rates_table, sampled
from longhmm.report.subject import Subject

MOST_ROWS = 60
BLOCKS = 400
INTERVALS = (
    "Every number comes with the interval that holds it with 90 % probability, given the model. Intervals know nothing "
    "of a wrong model: that is what the verdict is for."
)
# How a verdict is shown: tone, sign, title, and what it means for the reader.
ADVICE = {
    "trust": (
        "good", "✓", "The result can be trusted",
        "The chains agree, their draws satisfy the exact gradients, and no check speaks against the model. The "
        "numbers and intervals below can be used as they are.",
    ),
    "run longer": (
        "care", "…", "Run it longer",
        "There are too few independent draws to be sure of the intervals. Ask for more draws, or let the run go on; "
        "what is shown here is provisional.",
    ),
    "too many states": (
        "bad", "!", "The data do not support so many states",
        "Fewer describe the data as well, and chains do not agree on what the others are. Fit fewer, or compare.",
    ),
    "biased": (
        "bad", "!", "Some numbers are off",
        "Exact gradients at the draws show that the named quantity is shifted or its interval has the wrong width. "
        "Levels and events far from that quantity may still be right. Use more draws, or an exact sampler.",
    ),
    "the model does not fit": (
        "bad", "!", "The model does not describe these data",
        "The levels and events can still be a fair picture, but the intervals do not have the width they should have. "
        "Look at the predictive check and at the dwell times below, and try what the sentence above suggests.",
    ),
    "another mode is as good": (
        "bad", "!", "There is another explanation that is as good",
        "The data can be explained in more than one way, and the draws show only what their chains found. Compare the "
        "alternatives; fewer states often remove the ambiguity.",
    ),
    "chains agree, rest unchecked": (
        "care", "?", "The chains agree; the rest was not checked",
        "Whether the draws are biased and whether the model fits can be said only with the recording. "
        "Run posterior.diagnose(data) and save the run again.",
    ),
}  # fmt: skip


def write_page(subject: Subject, place: Path) -> Path:
    write_text(place, build_page(subject), "choose another place for the page")
    return place


def build_page(subject: Subject, *, live: bool = False) -> str:
    """The page as HTML. A live one asks its own server for a closer look at the recording, and nobody else."""
    posterior, data = subject.posterior, subject.data
    model, sampler, stored = posterior.model, posterior.settings.get("sampler"), packed(subject, live)
    facts = [f"Hidden Markov model with {model.n_states} states, {model.emission.name} emission"]
    facts += [sampler] if isinstance(sampler, str) else []
    facts += [sampled(subject.rate)] if subject.rate else []
    notes = [element("p", note) for note in subject.notes]
    moves = "Transition probabilities per sample"
    body = [
        element("h1", subject.title),
        element("p", " · ".join(facts), class_="facts"),
        verdict_box(*ADVICE[subject.verdict.kind], subject.verdict.reason),
    ]
    if data is not None:
        body.append(section("h2", "The recording", findings.trace_block(subject)))
    body += drift.baseline(subject)
    states = [findings.state_table(subject), hint("Small numbers are 90 % intervals.")]
    states += [picture("emissions", lambda: plots.emissions(posterior))] if emission_table(posterior) else []
    body += [
        section("h2", "What was found", findings.cards(subject), *notes),
        section("h3", "States", *states),
        section("h3", moves, findings.transition_table(subject), findings.pictures_found(subject)),
        section("h3", "Rates", rates_table(subject)),
    ]
    if subject.events is not None:
        body.append(section("h3", "Events", findings.event_block(subject)))
    checks = [section("h3", "Chains", picture("chains", lambda: plots.chain_traces(posterior, entries=4)))]
    if data is not None and subject.found is not None:
        buffers = picture("buffers", lambda: plots.buffer_report(posterior, data, blocks=BLOCKS))
        residuals = picture("residuals", lambda: plots.residual_check(posterior, data))
        simulated = picture("simulated", lambda: plots.predictive_check(posterior, data))
        checks += [section("h3", "Predictive check", residuals, simulated)]
        checks += [section("h3", "Buffer report", buffers)]
    body += [
        section("h2", "How sure", element("p", INTERVALS), picture("forest", lambda: plots.forest(posterior))),
        section("h3", "All parameters", parameter_table(subject)),
        section("h2", "Diagnostics", section("h3", "The checks behind the verdict", checks_table(subject)), *checks),
        section("h2", "How it was made", made(subject)),
        element("footer", "Made by longhmm. This file is complete: it loads nothing from elsewhere."),
    ]
    return document(subject.title, with_contents(join(body), "</section>"), {"recording": stored}, live)


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


def checks_table(subject: Subject) -> Safe:
    details, rows = subject.verdict.details, []
    for key in filter(details.__contains__, CHECKS):
        (meaning, limit), error = CHECKS[key], details.get(f"{key}_error")
        shown = number(float(details[key]), 3) + (f" ± {number(float(error), 2)}" if error is not None else "")
        rows.append([row_head(meaning), shown, limit, str(details.get(f"{key}_of", ""))])
    if not rows:
        return hint("The checks left no numbers.")
    return table(["check", "value", "should be", "worst for"], rows, "checks behind the verdict")


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
