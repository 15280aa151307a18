"""The reference: names in docstrings lead to where they are described, examples are code, and all names are listed.

What is described where is read off the pages themselves, docs/reference/*.md. mkdocs calls `on_page_markdown`; the
reader of docstrings takes `Docstrings`.
"""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Any

from griffe import Extension, Object

PAGES = Path(__file__).resolve().parent / "reference"
LIST = "<!-- every name -->"
# Written without `lh.` these are words of their own; others that begin with a small letter may be a variable's.
CERTAIN = {"sample", "open_data", "fit_em", "simulate", "write_report"}


def described() -> dict[str, dict[str, str]]:
    """By page: names, and the places by which links find them."""
    found: dict[str, dict[str, str]] = {}
    for page in sorted(PAGES.glob("*.md")):
        places = re.findall(r"^::: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        found[page.name] = {place.rpartition(".")[2]: place for place in places}
    return found


class Docstrings(Extension):
    """Examples are code; a name of the reference in backquotes is a link; every argument has a line of its own."""

    def __init__(self) -> None:
        self.places = {name: place for page in described().values() for name, place in page.items()}

    def on_object(self, *, obj: Object, **others: Any) -> None:
        if obj.docstring is not None:
            lines = one_by_one(examples(obj.docstring.value.split("\n")))
            obj.docstring.value = "\n".join(line if is_code(line) else self.linked(line, obj.path) for line in lines)

    def linked(self, line: str, own: str) -> str:
        def link(written: re.Match[str]) -> str:
            known, name, member = written["lh"], written["name"], written["member"] or ""
            place = self.places.get(name)
            certain = known or name[0].isupper() or name in CERTAIN
            if place is None or not certain or own.startswith(place) or (member and name != "Posterior"):
                return written[0]
            return f"[{written[0]}][{place}{member}]"

        return re.sub(r"(?<![`\[])`(?P<lh>(?:lh|longhmm)\.)?(?P<name>\w+)(?P<member>\.[a-z]\w*)?`(?![`\]])", link, line)


def is_code(line: str) -> bool:
    return line.lstrip().startswith((">>>", "..."))


def examples(lines: list[str]) -> list[str]:
    """With a heading that the reader of docstrings knows; it takes "Example:", or code without a heading, for text."""
    lines = [re.sub(r"^Example:$", "Examples:", line) for line in lines]
    first = next((number for number, line in enumerate(lines) if line.startswith(">>>")), None)
    if first is None:
        return lines
    return [*lines[:first], "Examples:", *(f"    {line}" if line else line for line in lines[first:])]


def one_by_one(lines: list[str]) -> list[str]:
    """Arguments that share a line, "chains, draws: ...", each with what it says of both."""
    found: list[str] = []
    while lines:
        head = re.match(r"^( +)(\w+(?:, \w+)+): (.*)", lines[0])
        if head is None or is_code(lines[0]):
            found.append(lines.pop(0))
            continue
        indent, names, said = head.groups()
        rest = list(takewhile(re.compile(f"{indent} ").match, lines[1:]))
        for name in names.split(", "):
            found += [f"{indent}{name}: {said}", *rest]
        lines = lines[1 + len(rest) :]
    return found


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """The list of all names, on the first page of the reference."""
    if LIST not in markdown:
        return markdown
    rows = ["| page | names |", "|---|---|"]
    for file, names in described().items():
        if names:
            title = (PAGES / file).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            rows.append(f"| [{title}]({file}) | {', '.join(f'[`{name}`][{place}]' for name, place in names.items())} |")
    return markdown.replace(LIST, "\n".join(rows))
