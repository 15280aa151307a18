"""Pieces of HTML. Whatever comes from outside (names of files, units, notes, settings) goes through `text`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from longhmm.report.plots.style import INK, colour, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Safe(str):
    """A piece that is HTML already."""


def text(value: object) -> Safe:
    """Anything as text: what is not `Safe` is escaped."""
    return value if isinstance(value, Safe) else Safe(escape(str(value)))


def element(name: str, content: object = "", **attributes: str) -> Safe:
    """`<name ...>content</name>`; a trailing underscore in a name of an attribute is dropped."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Safe(f"<{name}{given}>{text(content)}</{name}>")


def join(parts: Iterable[object], between: str = "\n") -> Safe:
    return Safe(between.join(text(part) for part in parts))


def table(head: Sequence[object], rows: Iterable[Sequence[object]], caption: str) -> Safe:
    """A table that scrolls by itself on a narrow screen; cells that are `<td>` or `<th>` already stay as they are."""
    top = element("tr", join((element("th", each, scope="col") for each in head), ""))
    body = join((element("tr", join(map(_cell, row), "")) for row in rows), "\n")
    inside = join([element("thead", top), element("tbody", body)])
    whole = element("table", inside, aria_label=caption)
    return element("div", whole, class_="scroll", tabindex="0", role="group", aria_label=caption)


def _cell(value: object) -> Safe:
    if isinstance(value, Safe) and value.startswith(("<td", "<th")):
        return value
    return element("td", value)


def state_label(state: int) -> Safe:
    """The number of a state with its colour."""
    swatch = element("span", "", class_="swatch", style=f"background:{colour(state)}")
    return element("th", Safe(f"{swatch}{state}"), scope="row")


def with_interval(middle: str, low: str, high: str) -> Safe:
    return element("td", Safe(f"{text(middle)}<small>{text(low)} to {text(high)}</small>"))


def duration(seconds: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if seconds < 0.9995 * limit:
            return f"{number(seconds * factor, 3)} {unit}"
    return f"{number(seconds / 3600, 3)} h"


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The drawing itself, without file header; `name` keeps its internal references apart from those of others."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawing = file.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", drawing)
    drawing = drawing.replace(INK, "currentColor").replace("#000000", "currentColor")
    # The font of the page is narrower or wider than the one matplotlib measured; the size stays.
    drawing = re.sub(r"font: (\d+(?:\.\d+)?)px [^;\"]*", r"font-size: \1px", drawing)
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)
