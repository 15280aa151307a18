"""All observations as a histogram, with what the model expects of each state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.envelopes import READ_AT_ONCE, envelope
from longhmm.data.sequences import Sequences, open_data
from longhmm.model.cdf import feature_cdfs
from longhmm.posterior.dwell import stationary_draws
from longhmm.posterior.plots.style import INK, SOFT, colour, legend, new_figure, tidy, with_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from longhmm.posterior.posterior import Posterior

BINS = 160
MOST_FEATURES = 4
LEGEND_UP_TO = 8
SPARED = 1e-5  # share of the observations at either end that may lie outside the picture
FINE = 20_000  # bins of the first look, from which the range of the picture is found


def amplitudes(
    posterior: Posterior, data: Any, *, unit: str = "", occupancy: np.ndarray | None = None, log: bool = True
) -> Figure:
    """Counts of all observations, and the fitted density of every state times its share of the time.

    Args:
        occupancy: `(K,)` share of the data in each state; the stationary law if None.
        log: whether counts are on a logarithmic axis, on which rare states can be seen.
    """
    sequences = open_data(data)
    share = stationary_draws(posterior.mean_params()["transition"][None])[0] if occupancy is None else occupancy
    features = min(sequences.dim, MOST_FEATURES)
    figure = new_figure(7.4 if features == 1 else 10, 3.8 * -(-features // 2))
    grid = figure.subplots(-(-features // 2), min(features, 2), squeeze=False).ravel()
    for feature in range(features, len(grid)):
        grid[feature].set_axis_off()
    discrete = sequences.dtype.kind in "iub"
    for feature, axes in enumerate(grid[:features]):
        edges, counts = histogram(sequences, feature, discrete)
        axes.stairs(counts, edges, fill=True, color=SOFT, alpha=0.45, label="observed")
        expected = expected_counts(posterior, edges, feature)
        if expected is not None:
            scaled = counts.sum() * share * expected
            middle = 0.5 * (edges[1:] + edges[:-1])
            for state in range(posterior.model.n_states):
                name = f"state {state}" if posterior.model.n_states <= LEGEND_UP_TO else None
                axes.plot(middle, scaled[:, state], color=colour(state), linewidth=1.8, label=name)
            axes.plot(middle, scaled.sum(axis=1), color=INK, linewidth=1.0, linestyle="--", label="all states")
        if log:
            axes.set_yscale("log")
            axes.set_ylim(0.7, 2.0 * max(counts.max(initial=1), 1))
        tidy(axes, x=with_unit("value" if sequences.dim == 1 else f"feature {feature}", unit), y="observations")
        if feature == 0:
            legend(axes)
    return figure


def histogram(sequences: Sequences, feature: int, discrete: bool) -> tuple[np.ndarray, np.ndarray]:
    """Edges and counts over all data, read in blocks; whole numbers get bins of their own where there are few."""
    bounds = envelope(sequences, bins=1)
    low, high = float(bounds.low[0, feature]), float(bounds.high[0, feature])
    if not np.isfinite(low):
        return np.array([0.0, 1.0]), np.zeros(1)
    if discrete:
        width = max(1, int(np.ceil((high - low + 1) / BINS)))
        edges = np.arange(low, high + width + 1, width) - 0.5
        return edges, _count(sequences, feature, edges)
    if high == low:
        low, high = low - 0.5, high + 0.5
    fine = np.linspace(low, high, FINE + 1)
    counts = _count(sequences, feature, fine)
    running = np.cumsum(counts) / max(counts.sum(), 1)
    first = int(np.searchsorted(running, SPARED))
    last = int(np.searchsorted(running, 1 - SPARED)) + 1
    if last - first < BINS:  # nearly everything in a sliver: look again, closer
        edges = np.linspace(fine[first], fine[min(last, FINE)], BINS + 1)
        return edges, _count(sequences, feature, edges)
    group = -(-(last - first) // BINS)
    cuts = np.arange(first, last, group)
    edges = fine[np.minimum(np.append(cuts, cuts[-1] + group), FINE)]
    return edges, np.add.reduceat(counts[: min(cuts[-1] + group, FINE)], cuts)


def _count(sequences: Sequences, feature: int, edges: np.ndarray) -> np.ndarray:
    total = np.zeros(len(edges) - 1)
    for start in range(0, sequences.length, READ_AT_ONCE):
        block = sequences.read(start, min(start + READ_AT_ONCE, sequences.length))
        total += np.histogram(block.values[:, feature][block.observed[:, feature]], edges)[0]
    return total


def expected_counts(posterior: Posterior, edges: np.ndarray, feature: int) -> np.ndarray | None:
    """`(bins, K)`, probability of each bin in each state at the posterior mean; None where it is not known."""
    model = posterior.model
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in posterior.mean_params().items()}
        values = jnp.broadcast_to(jnp.asarray(edges)[:, None], (len(edges), model.dim))
        if model.emission.support.is_discrete:
            values = jnp.floor(values)  # the last whole number below an edge
        found = feature_cdfs(model.emission, params, values)
        if found is not None:
            return np.diff(np.nan_to_num(np.asarray(found[1])[:, :, feature]), axis=0)
        if model.dim > 1:
            return None
        middle = jnp.asarray(0.5 * (edges[1:] + edges[:-1]))
        if model.emission.support.is_discrete:
            middle = jnp.round(middle)
        density = model.emission.log_density(params, middle[:, None] if model.emission.vector_valued else middle)
        return np.exp(np.asarray(density)) * np.diff(edges)[:, None]
