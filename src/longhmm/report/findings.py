"""The first half of the page: the verdict, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from longhmm.errors import LongHMMError
from longhmm.posterior.summary import level_draws
from longhmm.report import plots
from longhmm.report.html import (
    Safe,
    duration,
    element,
    inline_svg,
    join,
    state_label,
    table,
    text,
    with_interval,
)
from longhmm.report.pack import MOST_EVENTS
from longhmm.report.plots.style import digits_for, number
from longhmm.report.subject import Subject
from longhmm.report.words import advice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INTERVAL = (0.05, 0.95)
MOST_STATES = 40  # in tables of states by states
FIRST_ROWS = 15  # of the table of visits


def verdict_box(subject: Subject) -> Safe:
    said = advice(subject.verdict)
    inside = [
        element("div", said.sign, class_="sign", aria_hidden="true"),
        element("h2", said.title, id="verdict"),
        element(
            "div",
            join([element("p", _sentence(subject.verdict.reason)), element("p", said.meaning, class_="hint")]),
            class_="text",
        ),
    ]
    return element("section", join(inside), class_=f"verdict {said.tone}", aria_labelledby="verdict")


def cards(subject: Subject) -> Safe:
    posterior = subject.posterior
    facts: list[tuple[str, str]] = [(str(posterior.model.n_states), "states")]
    length = subject.posterior.settings.get("data", {}).get("length") if subject.data is None else subject.data.length
    if length:
        facts.append((f"{int(length):,}", "observations"))
        if subject.rate:
            facts.append((duration(int(length) / subject.rate), "of recording"))
    if subject.events is not None:
        facts.append((f"{len(subject.events):,}", "visits to states"))
    facts.append((f"{posterior.n_chains * posterior.n_draws:,}", f"draws in {posterior.n_chains} chains"))
    return element(
        "ul", join(element("li", Safe(f"<b>{text(a)}</b><span>{text(b)}</span>")) for a, b in facts), class_="cards"
    )


def in_words(subject: Subject) -> Safe:
    """The states of a small model in one sentence each."""
    posterior = subject.posterior
    if posterior.model.n_states > 6:
        return Safe("")
    levels = subject.in_file_units(subject.levels[:, 0])
    dwell = posterior.dwell(rate=subject.rate)
    said = []
    for state in range(posterior.model.n_states):
        share = dwell["stationary"][state] if subject.found is None else subject.found.occupancy[state]
        lasts = duration(dwell["dwell_s"][state]) if subject.rate else f"{number(dwell['dwell'][state], 3)} samples"
        said.append(
            f"State {state} lies at {_with_unit(number(levels[state]), subject.unit)}, takes {percent(share)} of the "
            f"time and lasts {lasts} on average."
        )
    return element("p", " ".join(said))


def state_table(subject: Subject) -> Safe:
    posterior = subject.posterior
    level = np.quantile(subject.in_file_units(level_draws(posterior)), [*INTERVAL, 0.5], axis=0)
    dwell = posterior.dwell(rate=subject.rate)
    column, factor = ("dwell_s", duration) if subject.rate else ("dwell", lambda value: f"{number(value, 3)} samples")
    head = ["state", _with_unit("level", subject.unit, brackets=True), "share of time, long run", "mean stay"]
    visits = None
    if subject.found is not None and subject.events is not None:
        head += ["share of this recording", "visits"]
        visits = np.bincount(subject.events["state"], minlength=posterior.model.n_states)
    rows = []
    for state in range(posterior.model.n_states):
        low, high, middle = level[:, state]
        digits = digits_for(low, high)
        row: list[object] = [
            state_label(state),
            with_interval(number(middle, digits), number(low, digits), number(high, digits)),
            with_interval(*(percent(dwell[f"stationary{end}"][state]) for end in ("", "_lower", "_upper"))),
            with_interval(*(factor(dwell[f"{column}{end}"][state]) for end in ("", "_lower", "_upper"))),
        ]
        if visits is not None and subject.found is not None:
            row += [percent(subject.found.occupancy[state]), f"{visits[state]:,}"]
        rows.append(row)
    return table(head, rows, "states")


def transition_table(subject: Subject) -> Safe:
    posterior = subject.posterior
    k = posterior.model.n_states
    if k > MOST_STATES:
        return element("p", f"A matrix of {k} by {k} is too large to print; the draws are in the run.", class_="hint")
    draws = np.asarray(posterior.draws["transition"]).reshape(-1, k, k)
    mean = draws.mean(axis=0)
    low, high = np.quantile(draws, INTERVAL, axis=0)
    rows = []
    for a in range(k):
        cells: list[object] = [state_label(a)]
        for b in range(k):
            digits = digits_for(low[a, b], high[a, b], 2, 6)
            inside = Safe(
                f"{text(_small(mean[a, b], digits))}<small>{text(_small(low[a, b], digits))} to "
                f"{text(_small(high[a, b], digits))}</small>"
            )
            cells.append(element("td", inside, class_="heat", style=f"--heat:{float(np.sqrt(mean[a, b])):.2f}"))
        rows.append(cells)
    return table(["from \\ to", *map(str, range(k))], rows, "transition probabilities per sample")


def _small(probability: float, digits: int) -> str:
    """A probability; one in a billion is as good as none."""
    return number(probability, digits) if probability >= 1e-9 else "0"


def pictures_found(subject: Subject) -> Safe:
    found = []
    data = subject.data
    if data is not None and subject.found is not None:
        found.append(
            tried(
                lambda: plots.amplitudes(subject.posterior, data, unit=_model_unit(subject)),
                "amplitudes",
                "All observations (grey) and what the model expects of each state, on a logarithmic scale.",
            )
        )
    found.append(
        picture(
            plots.transition_graph(subject.posterior),
            "graph",
            "Where each state goes: circles by share of time, arrows by share of departures, numbers are probabilities "
            "per sample.",
        )
    )
    if subject.posterior.model.dim == 1:  # small enough to stand side by side
        found = [element("div", join(found), class_="pair")]
    if subject.events is not None:
        figure = plots.dwell_times(subject.posterior, subject.events, rate=subject.rate)
        found.append(
            picture(
                figure,
                "dwell",
                "How long visits last (bars) and the fitted geometric law (line), in logarithmic bins. Bars above the "
                "line at the short end point to missed or spurious events, two humps to a state that hides two.",
            )
        )
    return join(found)


def picture(figure: Figure, name: str, caption: str, *, wide: bool = False) -> Safe:
    drawing = Safe(inline_svg(figure, name, caption))
    return element("figure", join([drawing, element("figcaption", caption)]), class_="wide" if wide else "plain")


def tried(draw: Callable[[], Figure], name: str, caption: str, *, wide: bool = False) -> Safe:
    """A picture, or the sentence that says why there is none."""
    try:
        return picture(draw(), name, caption, wide=wide)
    except LongHMMError as error:
        return element("p", f"Not drawn: {error}", class_="hint")


def trace_block(subject: Subject) -> Safe:
    """Canvas and controls; the script fills them."""
    states = range(subject.posterior.model.n_states)
    tracks = min(subject.posterior.model.dim, 4)
    rarest = -1
    if subject.events is not None and len(subject.events) and subject.found is not None:
        seen = np.bincount(subject.events["state"], minlength=len(states)) > 0
        rarest = int(np.argmin(np.where(seen, subject.found.occupancy, np.inf)))

    def button(do: str, sign: str, label: str) -> Safe:
        return element("button", sign, type="button", data_do=do, aria_label=label, title=label)

    choose = element(
        "select", _options(subject, rarest), class_="trace-state", aria_label="state of the event to go to"
    )
    fit = Safe('<label><input type="checkbox" class="trace-fit"> fit height</label>')
    bar = [
        button("out", "−", "zoom out"), button("in", "+", "zoom in"), button("left", "←", "move left"),
        button("right", "→", "move right"), button("whole", "whole", "show the whole recording"),
        fit, Safe('<span class="gap"></span>'),
    ]  # fmt: skip
    if subject.found is not None:
        bar += [button("previous", "‹ event", "previous event"), choose, button("next", "event ›", "next event")]
    levels = subject.levels[:, 0]
    legend = (
        element(
            "li",
            Safe(
                element("span", "", class_="swatch", style=f"background:{_colour(state)}")
                + text(f"state {state}: {_with_unit(number(levels[state]), _model_unit(subject))}")
            ),
        )
        for state in states
    )
    canvas = element(
        "canvas", "", class_="trace-main", tabindex="0", role="img",
        aria_label="The recording with decoded levels, and the probabilities of states below. Arrow keys move, plus "
        "and minus zoom, Home shows everything.",
    )  # fmt: skip
    parts = [
        element("div", join(bar), class_="bar"),
        canvas,
        element("canvas", "", class_="trace-strip", role="img", aria_label="The whole recording; click to go there."),
        element("div", "", class_="trace-status", aria_live="polite"),
        element("div", Safe("&nbsp;"), class_="trace-readout"),
        element("ul", join(legend), class_="legend") if len(states) <= 16 else Safe(""),
        element(
            "p",
            "Drag to move; pinch, double-click, or scroll (after a click, or with Ctrl) to zoom. Every point of a long "
            "record is drawn as the range from its smallest to its largest sample, so no event is lost.",
            class_="hint",
        ),
    ]
    return element("div", join(parts), class_="trace", style=f"--tall:{12 + 10 * tracks}rem")


def event_block(subject: Subject) -> Safe:
    if subject.events is None or subject.found is None:
        return Safe("")
    events, rate = subject.events, subject.rate
    rows = []
    for _, event in events.head(FIRST_ROWS).iterrows():
        start, end = int(event["start"]), int(event["end"])
        long = duration((end - start) / rate) if rate else f"{end - start:,}"
        rows.append([state_label(int(event["state"])), f"{start:,}", f"{end:,}", long, ""])
    listed = table(["state", "start", "end", "duration", ""], rows, "visits to states")
    bar = [
        element("select", _options(subject, -1), class_="events-state", aria_label="states to list"),
        element("button", "‹", type="button", data_do="back", aria_label="earlier visits"),
        element("button", "›", type="button", data_do="on", aria_label="later visits"),
        element("span", "", class_="events-place", aria_live="polite"),
    ]
    note = ""
    if len(events) > MOST_EVENTS:
        note = f" The first {MOST_EVENTS:,} of {len(events):,} are listed here; posterior.events(data) gives them all."
    parts = [
        element("p", f"{len(events):,} visits, from the most probable path.{note}"),
        element("div", join(bar), class_="bar"),
        listed,
    ]
    return element("div", join(parts), class_="events", data_rows=str(FIRST_ROWS))


def _options(subject: Subject, chosen: int) -> Safe:
    states = range(subject.posterior.model.n_states)
    options = [element("option", "any state", value="-1", **({"selected": "selected"} if chosen < 0 else {}))]
    for state in states:
        mark = {"selected": "selected"} if state == chosen else {}
        options.append(element("option", f"state {state}", value=str(state), **mark))
    return join(options)


def _model_unit(subject: Subject) -> str:
    """Values that were changed before the fit are no longer in the unit of the file."""
    return subject.unit if subject.undo is None else ""


def _with_unit(value: str, unit: str, *, brackets: bool = False) -> str:
    if not unit:
        return value
    return f"{value} ({unit})" if brackets else f"{value} {unit}"


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _colour(state: int) -> str:
    return plots.style.colour(state)


def percent(share: float) -> str:
    return f"{number(100 * share, 3)} %"
