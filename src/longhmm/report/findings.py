"""The first half of the page: what was found."""

import numpy as np

from longhmm.posterior.names import level_name
from longhmm.posterior.summary import level_draws
from longhmm.report import html, plots
from longhmm.report.html import Safe, duration, element, hint, join, picture, state_label, table, with_interval
from longhmm.report.plots.style import digits_for, number
from longhmm.report.subject import MOST_EVENTS, MOST_TRACKS, Subject

INTERVAL = (0.05, 0.95)
ENDS = ("", "_lower", "_upper")  # of the columns of a table with intervals
MOST_STATES = 40  # in tables of states by states
FIRST_ROWS = 15  # of the table of visits


def cards(subject: Subject) -> Safe:
    posterior, facts = subject.posterior, {"states": str(subject.posterior.model.n_states)}
    length = posterior.settings.get("data", {}).get("length") if subject.data is None else subject.data.length
    if length:
        facts["observations"] = f"{int(length):,}"
        if subject.rate:
            facts["of recording"] = duration(int(length) / subject.rate)
    if subject.events is not None:
        facts["visits to states"] = f"{len(subject.events):,}"
    facts[f"draws in {posterior.n_chains} chains"] = f"{posterior.n_chains * posterior.n_draws:,}"
    shown = (join([element("b", value), element("span", name)], "") for name, value in facts.items())
    return element("ul", join(element("li", each) for each in shown), class_="cards")


def state_table(subject: Subject) -> Safe:
    posterior, n_states = subject.posterior, subject.posterior.model.n_states
    level = np.quantile(subject.in_file_units(level_draws(posterior)), [0.5, *INTERVAL], axis=0)
    dwell = posterior.dwell(rate=subject.rate)
    column, shown = ("dwell_s", duration) if subject.rate else ("dwell", samples)
    rows: list[list[object]] = []
    for state in range(n_states):
        digits = digits_for(*level[1:, state])
        cells: list[object] = [state_label(state), with_interval(*(number(each, digits) for each in level[:, state]))]
        for name, form in (("stationary", percent), (column, shown)):
            cells.append(with_interval(*(form(dwell[f"{name}{end}"][state]) for end in ENDS)))
        rows.append(cells)
    head = ["state", level_name(posterior, subject.unit, subject.data), "share of time, long run", "mean dwell time"]
    if subject.found is not None and subject.events is not None:
        head += ["share of this recording", "visits"]
        visits = np.bincount(subject.events["state"], minlength=n_states)
        for row, share, count in zip(rows, subject.found.occupancy, visits, strict=True):
            row += [percent(share), f"{count:,}"]
    return table(head, rows, "states")


def transition_table(subject: Subject) -> Safe:
    draws = subject.posterior.transitions
    k = draws.shape[1]
    if k > MOST_STATES:
        return hint(f"A matrix of {k} by {k} is too large to print; the draws are in the run.")
    mean, (low, high) = draws.mean(axis=0), np.quantile(draws, INTERVAL, axis=0)
    rows = []
    for a in range(k):
        cells: list[object] = [state_label(a)]
        for b in range(k):
            digits = digits_for(low[a, b], high[a, b], 2, 6)
            # A probability of one in a billion is as good as none.
            shown = (number(each[a, b], digits) if each[a, b] >= 1e-9 else "0" for each in (mean, low, high))
            cells.append(with_interval(*shown, class_="heat", style=f"--heat:{float(np.sqrt(mean[a, b])):.2f}"))
        rows.append(cells)
    return table(["from \\ to", *map(str, range(k))], rows, "transition probabilities per sample")


def pictures_found(subject: Subject) -> Safe:
    posterior, data, events, found = subject.posterior, subject.data, subject.events, []
    if data is not None and subject.found is not None:
        found.append(picture("amplitudes", lambda: plots.amplitudes(posterior, data, unit=subject.model_unit)))
    found.append(picture("graph", lambda: plots.transition_graph(posterior)))
    if posterior.model.dim == 1:  # small enough to stand side by side
        found = [element("div", join(found), class_="pair")]
    if events is not None:
        found.append(picture("dwell", lambda: plots.dwell_times(posterior, events, rate=subject.rate)))
    return join(found)


def trace_block(subject: Subject, recording: str = "recording") -> Safe:
    """Canvas and controls; the script fills them."""
    n_states, levels, rarest, hidden = subject.posterior.model.n_states, subject.levels[:, 0], -1, "undecoded"
    if subject.events is not None and len(subject.events) and subject.found is not None:
        seen = np.bincount(subject.events["state"], minlength=n_states) > 0
        rarest, hidden = int(np.argmin(np.where(seen, subject.found.occupancy, np.inf))), ""
    of = level_name(subject.posterior, data=subject.data).removeprefix("level").removeprefix(" of")
    places = (f":{of} {number(level)} {subject.model_unit}".rstrip() for level in levels)
    names = (Safe(f'state <span data-state="{state}">{state}</span>{html.text(at)}') for state, at in enumerate(places))
    items = join(element("li", join([html.swatch(state), name], "")) for state, name in enumerate(names))
    legend = element("ul", items, class_="legend") if n_states <= 16 else ""
    tracks = min(1 if subject.data is None else subject.data.dim, MOST_TRACKS)
    parts = dict(
        options=_options(subject, rarest), legend=legend, tall=f"{9 + max(9 * min(tracks, 4), 3.2 * tracks):g}rem"
    )
    return element("div", html.template("trace.html", recording=recording, **parts), class_=hidden)


def event_block(subject: Subject) -> Safe:
    if subject.events is None or subject.found is None:
        return Safe("")
    events, rate = subject.events, subject.rate
    rows = []
    for start, end, state in events[["start", "end", "state"]].head(FIRST_ROWS).to_numpy().tolist():
        long = duration((end - start) / rate) if rate else f"{end - start:,}"
        rows.append([state_label(state), f"{start:,}", f"{end:,}", long, ""])
    said = f"{len(events):,} visits, from the most probable path."
    if len(events) > MOST_EVENTS:
        said += (
            f" The first {MOST_EVENTS:,} are listed here; longhmm decode, or posterior.events(data), gives them all."
        )
    listed = table(["state", "start", "end", "duration", ""], rows, "visits to states")
    parts = dict(options=_options(subject, -1), table=listed, said=said, rows=FIRST_ROWS)
    return html.template("events.html", file=f"{subject.title}.events.csv", **parts)


def _options(subject: Subject, chosen: int) -> Safe:
    names = {-1: "any state"} | {state: f"state {state}" for state in range(subject.posterior.model.n_states)}
    return join(
        element("option", name, value=str(state), **({"selected": "selected"} if state == chosen else {}))
        for state, name in names.items()
    )


def percent(share: float) -> str:
    return f"{number(100 * share, 3)} %"


def samples(length: float) -> str:
    return f"{number(length, 3)} samples"
