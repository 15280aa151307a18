"""Figures as SVG inside a page: text stays text, and the ink follows the colour of the page."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING

from longhmm.report.plots.style import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The drawing itself, without file header; `name` keeps its internal references apart from those of others."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "currentColor").replace("#000000", "currentColor")
    # The font of the page is narrower or wider than the one matplotlib measured; the size stays.
    text = re.sub(r"font: (\d+(?:\.\d+)?)px [^;\"]*", r"font-size: \1px", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)
