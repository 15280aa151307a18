"""The noise of control-variate gradients, from windows at points of the posterior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.data.sequences import Sequences
from longhmm.data.windows import Cells, gather
from longhmm.model.hmm import HMM
from longhmm.target.arcs import Arcs
from longhmm.target.coordinates import scores
from longhmm.target.estimators import WindowStatistics, stationary_start
from longhmm.target.flat import Flat
from longhmm.target.minibatch import Minibatch, with_numbers
from longhmm.target.rare import rare_score
from longhmm.target.schemes import Windows

BATCH = 64  # points looked at together


def score_differences(
    model: HMM,
    centre: Mapping[str, np.ndarray],
    points: Mapping[str, np.ndarray],
    sequences: Sequences,
    windows: Windows,
    buffer: int,
    share: np.ndarray,
    arcs: Arcs | None,
    *,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """`(n, P)` differences `g_c(theta) - g_c(theta*)`, each at its own point and random cell, and weights `(n,)`.

    `share` is that of `Rare`: what control variates know of rare transitions is taken off. `points` holds n coordinates
    by name, `(n, *shape)`. Cells are drawn as `arcs` has it, or alike; weights are one over N times the probability of
    the cell. The covariance of the weighted differences is the noise of one control-variate window.
    """
    layout = Cells(sequences.offsets, windows.core_length)
    flat = Flat.like(centre)
    n_points = next(iter(points.values())).shape[0]
    look = WindowStatistics(stationary_start)
    rng = np.random.default_rng(seed)
    found, weights = [], []
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(np.asarray(value, np.float64)) for name, value in centre.items()}
        for first in range(0, n_points, BATCH):
            here = {
                name: jnp.asarray(np.asarray(value[first : first + BATCH], np.float64))
                for name, value in points.items()
            }
            size = next(iter(here.values())).shape[0]
            cells = rng.integers(layout.n_cells if arcs is None else arcs.rotation.n_cells, size=size * CELLS_PER_POINT)
            weight = np.ones(len(cells))
            if arcs is not None:
                table = jax.tree.map(np.asarray, arcs)
                cells, weight = table.find(np, cells)
                weight = weight * (table.rotation.count / layout.n_cells)
            weights.append(weight)
            batch = _grouped(model, sequences, layout, cells, buffer, weight)
            found.append(np.asarray(_differences(model, flat, look, wide, here, batch, np.asarray(share, np.float64))))
    return np.concatenate(found), np.concatenate(weights)


CELLS_PER_POINT = 16


def _grouped(
    model: HMM, sequences: Sequences, layout: Cells, cells: np.ndarray, buffer: int, weights: np.ndarray
) -> Minibatch:
    """The windows of some cells by point, `(n, CELLS_PER_POINT, ...)`."""
    width = layout.width(buffer)
    rows, windows = gather(sequences, layout.locate(cells, buffer), width, model.lags)
    begin = np.arange(len(cells)) % CELLS_PER_POINT * width + windows.left
    spans = (buffer, layout.core_length, buffer)
    windows = replace(windows, begin=begin.astype(np.int32), spans=spans)
    by_point = jax.tree.map(
        lambda each: np.reshape(each, (-1, CELLS_PER_POINT, *each.shape[1:])), Minibatch(rows, windows, weights)
    )
    return with_numbers(model, by_point)


@partial(jax.jit, static_argnames=("flat", "statistics"))
def _differences(
    model: HMM,
    flat: Flat,
    statistics: WindowStatistics,
    centre: Any,
    points: Any,
    minibatches: Minibatch,
    share: jax.Array,
) -> jax.Array:
    def at(coordinates: Any, minibatch: Minibatch) -> tuple[jax.Array, jax.Array]:
        found = statistics(model, model.constrain(coordinates), minibatch)
        return flat.ravel(scores(model, coordinates, found)), found.transitions

    def moved(inputs: tuple[Any, Minibatch]) -> jax.Array:
        point, minibatch = inputs
        both = jax.tree.map(lambda *each: jnp.stack(each), centre, point)
        (home, away), (counts, _) = jax.vmap(at, (0, None))(both, minibatch)
        foreseen = jax.vmap(lambda known: rare_score(model, point, centre, share * known))(counts)
        return away - home - flat.ravel(foreseen)

    return jax.lax.map(moved, (points, minibatches)).reshape(-1, flat.size)
