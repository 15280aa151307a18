"""A posterior at a glance, as text and for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from longhmm.posterior.dwell import stationary_draws

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

MOST_ROWS = 16  # states shown in a notebook


def headline(posterior: Posterior) -> str:
    plural = "s" if posterior.n_chains > 1 else ""
    return f"{posterior.n_chains} chain{plural} x {posterior.n_draws:,} draws"


def as_text(posterior: Posterior) -> str:
    parts = [headline(posterior), repr(posterior.model)]
    sampler = posterior.settings.get("sampler")
    if isinstance(sampler, str):
        parts.append(sampler)
    parts.append("not yet diagnosed" if posterior.verdict is None else posterior.verdict.kind)
    return f"Posterior({', '.join(parts)})"


def as_html(posterior: Posterior) -> str:
    """Headline, verdict, notes, and one row per state. Every text is escaped: a loaded run may come from anywhere."""
    verdict = "not yet diagnosed: call diagnose(data)" if posterior.verdict is None else str(posterior.verdict)
    lines = [
        "<div class='longhmm-posterior'>",
        f"<p><b>Posterior</b>: {escape(headline(posterior))}, {escape(repr(posterior.model))}<br>{escape(verdict)}</p>",
    ]
    if posterior.notes:
        lines.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in posterior.notes) + "</ul>")
    columns = _columns(posterior)
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines.append(f"<table><thead><tr><th>state</th>{head}</tr></thead><tbody>")
    for state in range(min(posterior.model.n_states, MOST_ROWS)):
        cells = "".join(f"<td>{escape(column[state])}</td>" for column in columns.values())
        lines.append(f"<tr><th>{state}</th>{cells}</tr>")
    lines.append("</tbody></table>")
    if posterior.model.n_states > MOST_ROWS:
        lines.append(f"<p>and {posterior.model.n_states - MOST_ROWS} more states</p>")
    return "\n".join([*lines, "</div>"])


def _columns(posterior: Posterior) -> dict[str, list[str]]:
    """Posterior mean and sd of what has one number per state, and of the first feature of vectors."""
    transition = np.asarray(posterior.draws["transition"]).reshape(-1, *(posterior.model.n_states,) * 2)
    columns = {
        "share of time": stationary_draws(transition),
        "stays with probability": np.diagonal(transition, axis1=1, axis2=2),
    }
    for name, values in posterior.draws.items():
        if name != "transition" and values.dims[2] == "state" and values.ndim <= 4:
            flat = np.asarray(values).reshape(-1, values.shape[2], int(np.prod(values.shape[3:], dtype=int)))
            label = str(name) if flat.shape[2] == 1 else f"{name} (first of {flat.shape[2]})"
            columns[label] = flat[:, :, 0]
    return {
        name: [f"{mean:.4g} ± {sd:.1g}" for mean, sd in zip(each.mean(axis=0), each.std(axis=0), strict=True)]
        for name, each in columns.items()
    }
