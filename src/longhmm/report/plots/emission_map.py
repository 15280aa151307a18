"""What each state emits, feature by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longhmm.errors import ModelError
from longhmm.posterior.names import names_and_unit
from longhmm.posterior.summary import feature_levels
from longhmm.report.plots import style
from longhmm.report.plots.style import FONT_SIZE, INK, number, panels, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

LARGEST = 60  # states or features beyond which cells hold no numbers
DARKEST = 1.25  # at the end of the scale, which nothing reaches
DARK = 0.7  # cells that are darker have white numbers


class EmissionTable(NamedTuple):
    """One row per state, one column per feature or category."""

    values: np.ndarray  # (K, M), at the posterior mean
    columns: list[str]
    probabilities: bool  # whether they are probabilities, on a scale from 0 to 1


def emission_table(posterior: Posterior) -> EmissionTable | None:
    """What the heat map shows, or None where every state has but one number."""
    names = names_and_unit(posterior)[0]
    if "probs" in posterior.draws and posterior.draws["probs"].ndim == 4:
        values = np.asarray(posterior.draws["probs"].mean(("chain", "draw")))
        own = names if values.shape[1] == len(names) else [f"category {each}" for each in range(values.shape[1])]
        return EmissionTable(values, own, True)
    values = feature_levels(posterior)
    return EmissionTable(values, names, False) if values.shape[1] == len(names) > 1 else None


def emissions(posterior: Posterior, *, ax: Any = None) -> Figure:
    """A heat map of emissions by state: probabilities of binary features or of categories, or means of features, shaded
    by how far they lie from those of other states.

    Args:
        ax: axes to draw in, instead of a figure of its own.
    """
    found = emission_table(posterior)
    if found is None:
        raise ModelError(f"emissions needs more than one feature or category, got {posterior.model.emission!r}.")
    values = found.values
    k, m = values.shape
    shade = values
    if not found.probabilities:
        low, high = values.min(axis=0), values.max(axis=0)
        shade = (values - low) / np.where(high > low, high - low, 1.0)
    figure, (axes,) = panels(1, 1, min(2.0 + 0.62 * m, 14.0), 1.3 + 0.36 * min(k, 40), ax)
    axes.imshow(shade, cmap="Blues", vmin=0.0, vmax=DARKEST, aspect="auto")
    if k * m <= LARGEST * 4:
        for state, feature in np.ndindex(k, m):
            shown = f"{values[state, feature]:.2f}" if found.probabilities else number(float(values[state, feature]), 3)
            hue = "#ffffff" if shade[state, feature] > DARK else "#1b1f25"
            axes.text(feature, state, shown, ha="center", va="center", fontsize=FONT_SIZE - 1.5, color=hue)
    axes.set_xticks(range(m), [plain(each) for each in found.columns], rotation=40, ha="right")
    axes.set_yticks(range(k), [f"state {state}" for state in range(k)])
    style.tidy(axes)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0, labelcolor=INK)
    return figure
