"""Pieces of HTML, and the document that holds them; whatever comes from outside goes through `text`."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from longhmm.errors import LongHMMError
from longhmm.report.plots.style import GROUND, INK, colour, number
from longhmm.report.stages import stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPTS = ("trace_data.js", "states.js", "trace_view.js", "trace_marks.js", "event_table.js", "start.js")
CAPTIONS = {
    "amplitudes": "All observations (grey) and what the model expects of each state, on a logarithmic scale.",
    "emissions": "What each state emits, feature by feature: probabilities, or means, shaded by how far they lie "
    "from those of other states.",
    "baseline": "The slow baseline on which all levels lie, with its 90 % interval.",
    "gain": "By which levels and noise above the baseline are multiplied, with its 90 % interval.",
    "graph": "Where each state goes: circles by share of time, arrows by share of departures, numbers are "
    "probabilities per sample.",
    "dwell": "How long visits last (bars) and what the model expects (line), in logarithmic bins. Bars "
    "above the line at the short end point to missed or spurious events, two humps to a state that hides two.",
    "forest": "Median (dot), 50 % (thick) and 90 % (thin) intervals, with mean ± sd in numbers.",
    "chains": "The parameters on which the chains agree least: every chain in its colour, and on the right its ranks "
    "among all draws. Chains that agree overlap on the left and stay near the dotted line on the right.",
    "residuals": "Each observation against its prediction from those before. If the model is right the points lie on "
    "the line, and neighbouring residuals have nothing in common.",
    "simulated": "Statistics of data sets that are simulated at draws of the posterior (dots), and of the data (line). "
    "Where the line lies beyond all dots, the model does not make data of this kind.",
    "buffers": "What a window loses by not seeing the whole recording, by the length of its margin (the buffer).",
}
WIDE = {"baseline", "gain", "dwell", "emissions", "forest", "chains", "residuals", "simulated", "buffers"}


class Safe(str):
    """A piece that is HTML already."""


def text(value: object) -> Safe:
    """Anything as text: what is not `Safe` is escaped."""
    return value if isinstance(value, Safe) else Safe(escape(str(value)))


def element(name: str, content: object = "", **attributes: str) -> Safe:
    """`<name ...>content</name>`; a trailing underscore in a name of an attribute is dropped."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Safe(f"<{name}{given}>{text(content)}</{name}>")


hint = partial(element, "p", class_="hint")
row_head = partial(element, "th", scope="row")


def join(parts: Iterable[object], between: str = "\n") -> Safe:
    return Safe(between.join(text(part) for part in parts))


def table(head: Sequence[object], rows: Iterable[Sequence[object]], caption: str) -> Safe:
    """A table that scrolls by itself on a narrow screen; cells that are `<td>` or `<th>` already stay as they are."""

    def cell(value: object) -> Safe:
        return value if isinstance(value, Safe) and value.startswith(("<td", "<th")) else element("td", value)

    top = element("tr", join((element("th", each, scope="col") for each in head), ""))
    body = join(element("tr", join(map(cell, row), "")) for row in rows)
    whole = element("table", join([element("thead", top), element("tbody", body)]), aria_label=caption)
    return element("div", whole, class_="scroll", tabindex="0", role="group", aria_label=caption)


def swatch(state: int) -> Safe:
    return element("span", "", class_="swatch", style=f"background:{colour(state)}", data_colour=str(state))


def state_label(state: int) -> Safe:
    return row_head(Safe(f'{swatch(state)}<span data-state="{state}">{state}</span>'))


def with_interval(middle: str, low: str, high: str, **attributes: str) -> Safe:
    return element("td", Safe(f"{text(middle)}<small>{text(low)} to {text(high)}</small>"), **attributes)


def duration(seconds: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if seconds < 0.9995 * limit:
            return f"{number(seconds * factor, 3)} {unit}"
    return f"{number(seconds / 3600, 3)} h"


def section(level: str, title: str, *content: object) -> Safe:
    return join([element(level, title), *content])


def picture(name: str, draw: Callable[[], Figure], mark: str = "") -> Safe:
    """A picture with its caption, or why there is none; a mark keeps two of one name on a page apart."""
    import matplotlib

    stage(f"drawing: {name}")
    try:
        figure = draw()
    except LongHMMError as error:
        return hint(f"Not drawn: {error}")
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawing = file.getvalue()
    drawing = drawing[drawing.index("<svg") :].replace(INK, "currentColor").replace("#000000", "currentColor")
    drawing = drawing.replace(GROUND, "var(--ground)")
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    # The name keeps internal references apart from those of other drawings.
    drawing = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{mark}{name}-", drawing)
    # The font of the page is narrower or wider than the one matplotlib measured; the size stays.
    drawing = re.sub(r"font: (\d+(?:\.\d+)?)px [^;\"]*", r"font-size: \1px", drawing)
    drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(CAPTIONS[name])}" ', 1)
    inside = join([Safe(drawing), element("figcaption", CAPTIONS[name])])
    return element("figure", inside, class_="wide" if name in WIDE else "plain")


def document(title: str, body: Safe, recordings: dict[str, Any], live: bool) -> str:
    """The whole page, with its recordings by name. Only its own script may run, and only a live page may ask for
    anything, from where it came."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    mark = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    own = "'self'" if live else "'none'"
    policy = Safe(
        f"default-src 'none'; script-src 'sha256-{mark}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {own}; base-uri 'none'; form-action 'none'"
    )
    data = ""
    for name, each in recordings.items() if any(recordings.values()) else ():
        # No character of it can end the element it stands in.
        packed = json.dumps(each, separators=(",", ":")).replace("<", "\\u003c")
        data += f'<script type="application/json" id="{name}">{packed}</script>'
    parts = dict(policy=policy, style=Safe(_asset("page.css")), body=body, data=Safe(data), script=Safe(script))
    return template("page.html", title=title, **parts)


def template(name: str, **parts: object) -> Safe:
    """A piece of the page that is a file of its own, with parts in place of their names."""
    return Safe(Template(_asset(name)).substitute({key: text(value) for key, value in parts.items()}))


def _asset(name: str) -> str:
    return (files("longhmm.report") / name).read_text(encoding="utf-8")
