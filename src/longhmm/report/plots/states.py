"""The states: in the recording, their observations, how long they last, and where they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.envelopes import envelope
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, ModelError
from longhmm.inference.markov import stationary_on_host
from longhmm.posterior.diagnostics.observations import amplitudes as count_amplitudes
from longhmm.posterior.events import dwell_histogram
from longhmm.posterior.names import facts_of, names_and_unit
from longhmm.posterior.summary import feature_levels
from longhmm.report.plots import style
from longhmm.report.plots.style import FONT_SIZE, GROUND, INK, SOFT, colour, legend, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

AMPLITUDE_BINS = 160
DRAWS = 30
LEGEND_UP_TO = 5  # states; with more it would hide the curves, and their colours are those of all pictures
LABELLED_UP_TO = 4  # states; beyond, numbers on the arrows would overlap, and the table has them
BINS = 1600  # about one per pixel of a wide picture
DOTS_BELOW = 800  # samples that are drawn one by one
MARGIN = 2000  # samples read on either side of a stretch, so that its states know their neighbours
FAINTEST = 1e-3  # share of a state's departures below which an arrow is left out


def amplitudes(posterior: Posterior, data: Any, *, unit: str | None = None, log: bool = True, ax: Any = None) -> Figure:
    """Counts of all observations, what the model expects of each state, and the 90 % band of the sum of all states.

    Args:
        unit: of the observations, for the label; by default what the file says.
        log: whether counts are on a logarithmic axis, on which rare states can be seen.
        ax: axes to draw in, one for each feature.
    """
    sequences = posterior.model.opened(data)
    features = min(sequences.dim, style.MOST_FEATURES)
    figure, grid = style.panels(
        features, 2 if features < 5 else 3, 5.8 if features == 1 else 4.0, 3.8 if features < 5 else 2.9, ax
    )
    names, unit = names_and_unit(posterior, sequences, unit)
    for feature, axes in enumerate(grid):
        found = count_amplitudes(posterior, sequences, feature=feature, bins=AMPLITUDE_BINS, draws=DRAWS)
        axes.stairs(found.counts, found.edges, fill=True, color=SOFT, alpha=0.45, label="observed")
        middle = 0.5 * (found.edges[1:] + found.edges[:-1])
        for state, expected in enumerate(found.by_state):
            name = f"state {state}" if posterior.model.n_states <= LEGEND_UP_TO else None
            axes.plot(middle, expected, color=colour(state), linewidth=1.8, label=name)
        axes.fill_between(middle, found.lower, found.upper, color=INK, alpha=0.2, linewidth=0)
        axes.plot(middle, found.expected, color=INK, linewidth=1.0, linestyle="--", label="all states")
        if log:
            axes.set(yscale="log", ylim=(0.7, 2.0 * max(found.counts.max(initial=1), 1)))
        tidy(axes, x=style.with_unit(names[feature], unit), y="observations")
        if feature == 0:
            legend(axes)
    return figure


def dwell_times(posterior: Posterior, events: pd.DataFrame, *, rate: float | None = None, ax: Any = None) -> Figure:
    """One panel per state: lengths of its visits in logarithmic bins, and what the model expects of them.

    Visits cut short by the start or the end of a sequence are left out: how long they lasted is not known. Counts are
    those of a tenth of a decade, since bins of whole samples cannot all be equally wide; their axis is a square root,
    on which the scatter of every bar is about the same.

    Args:
        events: the table that `posterior.events(data)` returns.
        rate: samples per second; by default what the file of the run said.
        ax: axes to draw in, one for each state.
    """
    figure, grid = style.panels(min(posterior.model.n_states, style.MOST_PANELS), 3, 3.7, 2.7, ax)
    rate = facts_of(posterior).get("rate") if rate is None else rate
    whole = dwell_histogram(posterior, events)
    for state, axes in enumerate(grid):
        mine = whole[whole["state"] == state]
        counts, expected = mine["count"].to_numpy(), mine["expected"].to_numpy()
        shown = int(np.flatnonzero((counts > 0) | (expected > 0.5)).max(initial=0)) + 1
        edges = np.append(mine["lower"], mine["upper"].iloc[-1])[: shown + 1]
        scale, label = style.time_axis(float(edges[-1]), rate)
        widths = 10 * np.diff(np.log10(edges + 0.5))
        # The bin (a, b] of whole numbers, drawn from a + 1/2 to b + 1/2: a logarithmic axis has no 0.
        edges = scale * (edges + 0.5)
        axes.stairs(counts[:shown] / widths, edges, fill=True, color=colour(state), alpha=0.35)
        axes.stairs(expected[:shown] / widths, edges, color=colour(state), linewidth=1.8, label="fitted")
        axes.set(xscale="log", xlim=(edges[0], edges[-1]))
        style.few_ticks(axes.xaxis)
        axes.set_yscale("function", functions=(lambda count: np.sqrt(np.maximum(count, 0)), np.square))
        axes.set_ylim(bottom=0)
        label = label.replace("time", "duration") if rate is not None else "duration (samples)"
        tidy(axes, title=f"state {state}, {counts.sum():,} whole visits", x=label, y="visits per ⅒ decade")
        axes.grid(axis="y", color=SOFT, alpha=0.2)
        legend(axes)
    return figure


def transition_graph(posterior: Posterior, *, ax: Any = None) -> Figure:
    """Where each state goes when it is left: the area of a circle is the share of time in the long run, the width of an
    arrow the share of its state's departures, and the number on it the probability per step (posterior mean)."""
    from matplotlib.patches import Circle, FancyArrowPatch

    mean = posterior.transitions.mean(axis=0)
    k, share = len(mean), stationary_on_host(mean)
    leaving = mean * (1 - np.eye(k))
    departures = leaving / np.maximum(leaving.sum(axis=1, keepdims=True), 1e-300)
    angle = np.pi - 2 * np.pi * np.arange(k) / k
    place = np.stack([1.55 * np.cos(angle), np.sin(angle)], axis=1)
    room = 0.38 if k == 1 else min(0.38, 0.45 * float(np.linalg.norm(place[0] - place[1 % k])))
    # Even a state of no weight must be found.
    radius = np.maximum(room * np.sqrt(share / share.max()), 0.4 * room)
    figure, (axes,) = style.panels(1, 1, 5.6, 2.3 if k <= 2 else 4.6, ax)
    axes.set_axis_off()
    circles = [Circle(place[a].tolist(), radius[a], facecolor=colour(a)) for a in range(k)]
    for a, b in np.argwhere((departures >= FAINTEST) & ~np.eye(k, dtype=bool)):
        axes.add_patch(
            FancyArrowPatch(
                place[a], place[b], patchA=circles[a], patchB=circles[b], shrinkA=2, shrinkB=2,
                connectionstyle="arc3,rad=-0.22", arrowstyle="-|>", mutation_scale=13,
                linewidth=0.8 + 3.2 * departures[a, b], color=colour(a), alpha=0.85,
            )
        )  # fmt: skip
        if k <= LABELLED_UP_TO:
            between = place[b] - place[a]
            bend = 0.5 * (place[a] + place[b]) + 0.22 * np.array([-between[1], between[0]])
            # On the arrow itself, nearer to its start: at the middle those of crossing arrows would meet.
            along = np.clip((radius[a] + 0.42) / np.linalg.norm(between), 0.2, 0.5)
            x, y = (1 - along) ** 2 * place[a] + 2 * along * (1 - along) * bend + along**2 * place[b]
            axes.text(
                x, y, f"{mean[a, b]:.2g}", ha="center", va="center", fontsize=FONT_SIZE - 1.5, color=INK,
                bbox={"boxstyle": "round,pad=0.12", "facecolor": GROUND, "edgecolor": colour(a), "linewidth": 0.5},
            )  # fmt: skip
    for state, circle in enumerate(circles):
        axes.add_patch(circle)
        x, y = place[state]
        axes.text(x, y, str(state), ha="center", va="center", fontsize=FONT_SIZE + 3, weight="bold", color="#ffffff")
        outward = place[state] / max(float(np.linalg.norm(place[state])), 1e-9)
        x, y = place[state] + (radius[state] + 0.08) * outward
        side = "center" if abs(outward[0]) < 0.3 else "left" if outward[0] > 0 else "right"
        above = "center" if abs(outward[0]) >= 0.3 else "bottom" if outward[1] > 0 else "top"
        percent = f"{100 * share[state]:{'.1f' if share[state] >= 1e-3 else '.1g'}} %"
        axes.text(x, y, percent, ha=side, va=above, fontsize=FONT_SIZE - 1, color=SOFT)
    tall = 0.95 if k <= 2 else 1.7
    axes.set(xlim=(-2.4, 2.4), ylim=(-tall, tall), aspect="equal")
    return figure


def segmentation(
    posterior: Posterior,
    data: Any,
    *,
    start: int = 0,
    stop: int | None = None,
    rate: float | None = None,
    unit: str | None = None,
    path: np.ndarray | None = None,
    probabilities: np.ndarray | None = None,
    ax: Any = None,
) -> Figure:
    """Draw `[start, stop)` of the data, however long: the envelope, decoded levels, and `P(x_t = k | y)`.

    Args:
        rate: samples per second, for a time axis in seconds; by default what the file says, like the unit.
        unit: of the observations, for the label.
        path: states `(T,)` of all the data, if they were decoded already.
        probabilities: `(T, K)` of all the data, if they are known already.
        ax: axes to draw in, one for each feature and one for the probabilities.

    Without `path` and `probabilities` the stretch and some observations on either side are decoded.
    """
    sequences, n_states = posterior.model.opened(data), posterior.model.n_states
    stop, rate = sequences.length if stop is None else stop, sequences.rate if rate is None else rate
    names, unit = names_and_unit(posterior, sequences, unit)
    bounds = envelope(sequences, start, stop, bins=BINS)
    states, chances = _states(posterior, sequences, start, stop, path, probabilities)
    scale, label = style.time_axis(stop - start if start == 0 else stop, rate)
    starts = np.arange(0, stop - start, bounds.step)
    times = scale * np.append(start + starts, stop)  # ends of the bins, one more than there are bins
    levels, features = feature_levels(posterior), min(sequences.dim, style.MOST_FEATURES)
    how: Any = {"sharex": True, "height_ratios": [2.1] * features + [0.9]}
    figure, grid = style.panels(features + 1, 1, 11, (1.6 + 2.1 * features) / (features + 1), ax, **how)
    for feature, axes in enumerate(grid[:-1]):
        _trace(axes, times, bounds.low[:, feature], bounds.high[:, feature], states, bounds.step)
        for state in np.unique(states) if feature < levels.shape[1] else ():
            visited = np.maximum.reduceat(states == state, starts).astype(np.int8)
            edges = times[np.flatnonzero(np.diff(visited, prepend=0, append=0))]
            level = np.full(len(edges) // 2, levels[state, feature])
            axes.hlines(level, edges[::2], edges[1::2], color=colour(int(state)), linewidth=2.2, zorder=3)
        tidy(axes, y=style.with_unit(names[feature], unit))
    shares = np.add.reduceat(np.asarray(chances, np.float64), starts, axis=0)
    shares = shares / np.diff(np.append(starts, len(chances)))[:, None]
    colours = [colour(state) for state in range(n_states)]
    # The last bin has an end of its own.
    grid[-1].stackplot(times, np.append(shares, shares[-1:], axis=0).T, step="post", colors=colours, linewidth=0)
    grid[-1].set(ylim=(0, 1), xmargin=0)
    tidy(grid[-1], x=label, y="probability")
    for state in range(n_states):
        name = f"state {state}: {levels[state, 0]:.4g} {unit}".rstrip()
        grid[0].plot([], [], "s", color=colour(state), label=style.plain(name))
    legend(grid[0], ncols=min(n_states, 6), loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return figure


def _states(
    posterior: Posterior, data: Sequences, start: int, stop: int, path: np.ndarray | None, chances: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    for name, given in (("path", path), ("probabilities", chances)):
        if given is not None and len(given) != data.length:
            raise DataError(f"{name} must have {data.length} rows, one per observation, got {len(given)}.")
    if chances is not None and chances.shape[1:] != (posterior.model.n_states,):
        raise ModelError(f"probabilities must have one column per state of the model, got {chances.shape}.")
    path, chances = (None if each is None else np.asarray(each[start:stop]) for each in (path, chances))
    if path is None or chances is None:
        first, last = max(0, start - MARGIN), min(data.length, stop + MARGIN)
        near = data if last - first == data.length else data.gathered([(first, last)])
        own, draws = slice(start - first, stop - first), int(np.clip(2_000_000 // (last - first), 1, 20))
        path = posterior.decode(near)[own] if path is None else path
        chances = posterior.state_probabilities(near, draws=draws)[own] if chances is None else chances
    return path, chances


def _trace(axes: Axes, times: np.ndarray, low: np.ndarray, high: np.ndarray, states: np.ndarray, step: int) -> None:
    """One feature: its samples, in the colours of states if they are few, or bins of several."""
    if step == 1:
        axes.plot(times[:-1], low, color=SOFT, linewidth=0.6, zorder=1)
        for state in np.unique(states) if len(low) <= DOTS_BELOW else ():
            here = states == state
            axes.plot(times[:-1][here], low[here], ".", markersize=3.5, color=colour(int(state)), zorder=2)
        return
    # A bin reaches to the nearest end of the one before, so that neighbours always touch.
    low, high = low.copy(), high.copy()
    low[1:], high[1:] = np.fmin(low[1:], high[:-1]), np.fmax(high[1:], low[:-1])
    axes.fill_between(times[:-1], low, high, step="post", color=SOFT, alpha=0.55, linewidth=0.4, zorder=1)
