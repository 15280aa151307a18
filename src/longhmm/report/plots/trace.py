"""The trace with its decoded states, and below it their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.envelopes import Envelope, envelope, excerpt
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError, ModelError
from longhmm.posterior.summary import feature_levels
from longhmm.report.plots.style import INK, SOFT, colour, new_figure, plain, tidy, time_axis, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

BINS = 1600  # about one per pixel of a wide picture
DOTS_BELOW = 800  # samples that are drawn one by one
MARGIN = 2000  # samples read on either side of a stretch, so that its states know their neighbours
MOST_FEATURES = 4


def segmentation(
    posterior: Posterior,
    data: Any,
    *,
    start: int = 0,
    stop: int | None = None,
    rate: float | None = None,
    unit: str = "",
    path: np.ndarray | None = None,
    probabilities: np.ndarray | None = None,
) -> Figure:
    """Draw `[start, stop)` of the data, however long: the envelope, decoded levels, and `P(x_t = k | y)`.

    Args:
        rate: samples per second, for a time axis in seconds.
        unit: of the observations, for the label.
        path: states `(T,)` of all the data, if they were decoded already.
        probabilities: `(T, K)` of all the data, if they are known already.

    Without `path` and `probabilities` the stretch and some observations on either side are decoded.
    """
    sequences = open_data(data)
    stop = sequences.length if stop is None else stop
    bounds = envelope(sequences, start, stop, bins=BINS)
    states, laws = _states(posterior, sequences, start, stop, path, probabilities)
    scale, label = time_axis(stop - start if start == 0 else stop, rate)
    levels = feature_levels(posterior)
    features = min(sequences.dim, MOST_FEATURES)
    figure = new_figure(11, 1.6 + 2.1 * features)
    grid = figure.subplots(features + 1, 1, sharex=True, squeeze=False, height_ratios=[2.1] * features + [0.9])[:, 0]
    for feature in range(features):
        name = "value" if sequences.dim == 1 else f"feature {feature}"
        _draw_trace(grid[feature], bounds, states, feature, scale)
        if feature < levels.shape[1]:
            _draw_levels(grid[feature], bounds, states, levels[:, feature], scale)
        tidy(grid[feature], y=with_unit(name, unit))
    _draw_laws(grid[-1], bounds, laws, scale)
    tidy(grid[-1], x=label, y="probability")
    for number in range(posterior.model.n_states):
        grid[0].plot([], [], "s", color=colour(number), label=plain(_name(number, levels, unit)))
    grid[0].legend(
        frameon=False, ncols=min(posterior.model.n_states, 6), loc="lower right", bbox_to_anchor=(1.0, 1.0),
        fontsize=9, labelcolor=INK,
    )  # fmt: skip
    return figure


def _name(state: int, levels: np.ndarray, unit: str) -> str:
    return f"state {state}: {levels[state, 0]:.4g}{f' {unit}' if unit else ''}"


def _states(
    posterior: Posterior,
    sequences: Sequences,
    start: int,
    stop: int,
    path: np.ndarray | None,
    probabilities: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """States and laws of the rows `[start, stop)`."""
    for name, given in (("path", path), ("probabilities", probabilities)):
        if given is not None and len(given) != sequences.length:
            raise DataError(f"{name} must have {sequences.length} rows, one per observation, got {len(given)}.")
    if probabilities is not None and probabilities.shape[1:] != (posterior.model.n_states,):
        raise ModelError(
            f"probabilities must have one column per state ({posterior.model.n_states}), got {probabilities.shape}."
        )
    first, last = max(0, start - MARGIN), min(sequences.length, stop + MARGIN)
    near = None
    if path is None or probabilities is None:
        near = sequences if last - first == sequences.length else open_data(excerpt(sequences, first, last))
    own = slice(start - first, stop - first)
    states = posterior.decode(near)[own] if path is None else np.asarray(path[start:stop])
    if probabilities is not None:
        return states, np.asarray(probabilities[start:stop])
    draws = int(np.clip(2_000_000 // (last - first), 1, 20))
    return states, posterior.state_probabilities(near, draws=draws)[own]


def _times(bounds: Envelope) -> np.ndarray:
    """Ends of the bins, one more than there are bins."""
    return np.append(np.arange(bounds.start, bounds.stop, bounds.step), bounds.stop).astype(np.float64)


def _draw_trace(axes: Axes, bounds: Envelope, states: np.ndarray, feature: int, scale: float) -> None:
    low, high = bounds.low[:, feature], bounds.high[:, feature]
    if bounds.stop - bounds.start <= DOTS_BELOW:
        times = scale * np.arange(bounds.start, bounds.stop)
        axes.plot(times, low, color=SOFT, linewidth=0.6, zorder=1)
        for state in np.unique(states):
            here = states == state
            axes.plot(times[here], low[here], ".", markersize=3.5, color=colour(int(state)), zorder=2)
        return
    if bounds.step == 1:
        axes.plot(scale * np.arange(bounds.start, bounds.stop), low, color=SOFT, linewidth=0.6, zorder=1)
        return
    # A bin reaches to the nearest end of the one before, so that neighbours always touch.
    low, high = low.copy(), high.copy()
    low[1:], high[1:] = np.fmin(low[1:], high[:-1]), np.fmax(high[1:], low[:-1])
    axes.fill_between(
        scale * _times(bounds)[:-1], low, high, step="post", color=SOFT, alpha=0.55, linewidth=0.4, zorder=1
    )


def _draw_levels(axes: Axes, bounds: Envelope, states: np.ndarray, levels: np.ndarray, scale: float) -> None:
    """The level of every state that a bin visits, over the width of the bin."""
    starts = np.arange(0, bounds.stop - bounds.start, bounds.step)
    times = scale * _times(bounds)
    for state in np.unique(states):
        visited = np.maximum.reduceat(states == state, starts)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], visited, [False]]).astype(np.int8)))
        axes.hlines(
            np.full(len(edges) // 2, levels[state]), times[edges[::2]], times[edges[1::2]], color=colour(int(state)),
            linewidth=2.2, zorder=3,
        )  # fmt: skip


def _draw_laws(axes: Axes, bounds: Envelope, laws: np.ndarray, scale: float) -> None:
    """Mean probabilities of every bin, stacked."""
    starts = np.arange(0, bounds.stop - bounds.start, bounds.step)
    counts = np.diff(np.append(starts, len(laws)))[:, None]
    shares = np.add.reduceat(np.asarray(laws, np.float64), starts, axis=0) / counts
    edges = np.concatenate([np.zeros((len(starts), 1)), np.cumsum(shares, axis=1)], axis=1)
    edges = np.concatenate([edges, edges[-1:]])  # the last bin has an end of its own
    for state in range(laws.shape[1]):
        axes.fill_between(
            scale * _times(bounds), edges[:, state], edges[:, state + 1], step="post", color=colour(state), linewidth=0
        )
    axes.set_ylim(0, 1)
    axes.margins(x=0)
