"""How data look in a notebook, and tables there."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences

ROWS_READ, MOST_FEATURES = 10_000, 12


def whereabouts(self: Sequences) -> list[str]:
    """Where data lie, and what runs along with them."""
    where = "in memory" if self.in_memory else "read on demand"
    return [where, *(f"with {name}" for name in list(self.parts)[1:])]


def data_html(self: Sequences) -> str:
    """A headline, and one row per feature with the range of its first values; every text is escaped."""
    count = min(self.length, ROWS_READ)
    rows = self.rows(0, count)
    values = np.where(rows.observed, rows.values, np.nan).astype(np.float64)
    names = self.source.names or tuple(map(str, range(self.dim)))
    cells = []
    for name, column in list(zip(names, values.T, strict=True))[:MOST_FEATURES]:
        seen = column[~np.isnan(column)]
        numbers = [f"{each:.4g}" for each in (seen.min(), seen.mean(), seen.max())] if len(seen) else ["", "", ""]
        cells.append([name, *numbers, f"{1 - len(seen) / count:.1%}"])
    facts = [f"{self.n_sequences:,} sequence{'s' if self.n_sequences > 1 else ''}", f"{self.length:,} observations"]
    if self.rate is not None:
        facts.append(f"{self.rate:g} Hz ({self.length / self.rate:.4g} s)")
    facts += [self.unit] if self.unit else []
    facts += whereabouts(self)
    more = f"<p>and {self.dim - MOST_FEATURES} more features</p>" if self.dim > MOST_FEATURES else ""
    part = "" if count == self.length else f"<p>numbers of the first {count:,} observations</p>"
    shown = html_table(("feature", "least", "mean", "largest", "missing"), cells)
    said = f"<p><b>{escape(self.name)}</b>: {escape(', '.join(facts))}</p>"
    return f"<div class='longhmm-data'>{said}{shown}{more}{part}</div>"


def buffers_html(self: Any) -> str:
    """The table that a buffer report prints."""
    head, *rows, foot = str(self).split("\n")
    shown = html_table(head.split(), (row.split() for row in rows))
    return f"<div class='longhmm-buffers'>{shown}<p>{escape(foot)}</p></div>"


def html_table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Every text is escaped."""
    top, *body = (
        f"<tr>{''.join(f'<{kind}>{escape(str(each))}</{kind}>' for each in cells)}</tr>"
        for kind, cells in (("th", head), *(("td", row) for row in rows))
    )
    return f"<table><thead>{top}</thead><tbody>{''.join(body)}</tbody></table>"
