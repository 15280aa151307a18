"""The frame of the page: the verdict in a line with the rest folded away, and the contents."""

import re

from longhmm.report.html import Safe, element, hint, join, text

ALSO = re.compile(r"\. Also, ")
HEADING = re.compile(r"<(h[23])>(.*?)</\1>")


def verdict_box(tone: str, sign: str, title: str, meaning: str, reason: str, name: str = "verdict") -> Safe:
    """The title and the first reason; what it means and the further reasons unfold."""
    first, *others = (each[:1].upper() + each[1:].rstrip(".") + "." for each in ALSO.split(reason))
    more = [element("ul", join(element("li", each) for each in others))] if others else []
    said = "What this means" + (f", and {len(others)} more reason{'s' if len(others) > 1 else ''}" if others else "")
    folded = element("details", join([element("summary", said), hint(meaning), *more]))
    inside = [
        element("div", sign, class_="sign", aria_hidden="true"),
        element("h2", title, id=name),
        element("div", join([element("p", first), folded]), class_="text"),
    ]
    return element("section", join(inside), class_=f"verdict {tone}", aria_labelledby=name)


def with_contents(body: Safe, after: str) -> Safe:
    """The body with a mark on every heading, and behind the first `after` a list of links to them."""
    found: list[tuple[str, str, str]] = []

    def mark(heading: re.Match[str]) -> str:
        level, title = heading.groups()
        name = re.sub(r"[^a-z0-9]+", "-", re.sub(r"<[^>]*>|&\w+;", "", title).lower()).strip("-") or "part"
        name += f"-{len(found)}" if any(name == other for _, other, _ in found) else ""
        found.append((level, name, title))
        return f'<{level} id="{name}">{title}</{level}>'

    marked = HEADING.sub(mark, body)
    links = (element("li", Safe(f'<a href="#{name}">{title}</a>'), class_=level) for level, name, title in found)
    listed = element("nav", element("ul", join(links)), class_="contents", aria_label="contents")
    return Safe(text(Safe(marked)).replace(after, f"{after}\n{listed}", 1))
