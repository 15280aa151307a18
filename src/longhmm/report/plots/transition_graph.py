"""States as circles, transitions as arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longhmm.posterior.dwell import stationary_draws
from longhmm.report.plots.style import FONT_SIZE, INK, SOFT, colour, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

LABELLED_UP_TO = 5  # states; beyond, numbers on the arrows would overlap
FAINTEST = 1e-3  # share of a state's departures below which an arrow is left out


def transition_graph(posterior: Posterior) -> Figure:
    """Where each state goes when it is left.

    The area of a circle is the share of time in the long run; the width of an arrow is the share of its state's
    departures, and the number beside it the probability per step (posterior mean).
    """
    from matplotlib.patches import Circle, FancyArrowPatch

    k = posterior.model.n_states
    draws = np.asarray(posterior.draws["transition"]).reshape(-1, k, k)
    mean = draws.mean(axis=0)
    share = stationary_draws(mean[None])[0]
    leaving = mean * (1 - np.eye(k))
    departures = leaving / np.maximum(leaving.sum(axis=1, keepdims=True), 1e-300)
    angle = np.pi - 2 * np.pi * np.arange(k) / k
    place = np.stack([1.55 * np.cos(angle), np.sin(angle)], axis=1)
    room = 0.38 if k == 1 else min(0.38, 0.45 * float(np.linalg.norm(place[0] - place[1 % k])))
    # Even a state of no weight must be found.
    radius = np.maximum(room * np.sqrt(share / share.max()), 0.4 * room)
    figure = new_figure(5.6, 2.3 if k <= 2 else 4.1)
    axes = figure.subplots()
    axes.set_axis_off()
    for a in range(k):
        for b in range(k):
            if a == b or departures[a, b] < FAINTEST:
                continue
            arrow = FancyArrowPatch(
                *_ends(place[a], place[b], radius[a], radius[b]), connectionstyle="arc3,rad=-0.22",
                arrowstyle="-|>", mutation_scale=13, linewidth=0.8 + 3.2 * departures[a, b], color=colour(a),
                alpha=0.85, shrinkA=0, shrinkB=0,
            )  # fmt: skip
            axes.add_patch(arrow)
            if k <= LABELLED_UP_TO:
                between = place[b] - place[a]
                aside = np.array([-between[1], between[0]]) / np.linalg.norm(between)
                # Nearer to the start of the arrow: at the middle those of crossing arrows would meet.
                x, y = place[a] + 0.36 * between + (0.11 * np.linalg.norm(between) + 0.19) * aside
                axes.text(x, y, f"{mean[a, b]:.2g}", ha="center", va="center", fontsize=FONT_SIZE - 1, color=INK)
    for state in range(k):
        axes.add_patch(Circle(tuple(place[state]), radius[state], facecolor=colour(state), edgecolor="none"))
        x, y = place[state]
        axes.text(
            x, y, str(state), ha="center", va="center", fontsize=FONT_SIZE + 3, fontweight="bold", color="#ffffff"
        )
        outward = place[state] / max(float(np.linalg.norm(place[state])), 1e-9)
        x, y = place[state] + (radius[state] + 0.08) * outward
        side = "center" if abs(outward[0]) < 0.3 else "left" if outward[0] > 0 else "right"
        above = "center" if abs(outward[0]) >= 0.3 else "bottom" if outward[1] > 0 else "top"
        axes.text(x, y, _share(share[state]), ha=side, va=above, fontsize=FONT_SIZE - 1, color=SOFT)
    tall = 0.95 if k <= 2 else 1.7
    axes.set(xlim=(-2.4, 2.4), ylim=(-tall, tall), aspect="equal")
    return figure


Point = tuple[float, float]


def _ends(a: np.ndarray, b: np.ndarray, from_radius: float, to_radius: float) -> tuple[Point, Point]:
    """Where an arrow leaves one circle and meets the other: somewhat aside, since it is bent."""
    toward = (b - a) / np.linalg.norm(b - a)
    aside = np.array([-toward[1], toward[0]])

    def edge(centre: np.ndarray, radius: float, sign: float) -> Point:
        x, y = centre + (radius + 0.03) * (sign * np.cos(0.5) * toward + np.sin(0.5) * aside)
        return float(x), float(y)

    return edge(a, from_radius, 1.0), edge(b, to_radius, -1.0)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %" if value >= 1e-3 else f"{100 * value:.1g} %"
