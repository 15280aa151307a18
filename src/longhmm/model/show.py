"""A model at a glance, for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpyro.distributions import Distribution

from longhmm.model.parameters import Pending

if TYPE_CHECKING:
    from longhmm.model.hmm import HMM


def as_html(model: HMM) -> str:
    """The emission, and one row per parameter with its prior; every text is escaped."""
    rows = [("transition", f"{model.n_states} x {model.n_states}", str(model.transitions))]
    specifications = model.emission.untied.specifications
    rows += [(name, "one per state", _prior(spec)) for name, spec in specifications.items()]
    initial = model.initial if isinstance(model.initial, str) else "given"
    uniform = not isinstance(model.initial, str) and np.allclose(model.initial, 1.0 / model.n_states)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<div class='longhmm-model'><p><b>Hidden Markov model</b>: {model.n_states} states, "
        f"{escape(repr(model.emission))}, initial distribution {'uniform' if uniform else escape(initial)}</p>"
        "<table><thead><tr><th>parameter</th><th>size</th><th>prior</th></tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _prior(spec: Any) -> str:
    if isinstance(spec, Pending):
        return "scaled to the data"
    if isinstance(spec, Distribution):
        return type(spec).__name__
    return f"fixed at {spec.item():g}" if np.ndim(spec) == 0 else "fixed"
