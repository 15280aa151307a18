"""The observed information of the log posterior, from differences of exact gradients, and how windows differ."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from longhmm.backends.evaluate import serves_many
from longhmm.backends.programs import either, quick
from longhmm.data.executor import nearby
from longhmm.data.layout import Partition, gather
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Params
from longhmm.model.summary import subsample_data
from longhmm.target.buffered import windows_of
from longhmm.target.control_variate import count_score
from longhmm.target.coordinates import Flat, constrain, natural_score, scores
from longhmm.target.minibatch import Minibatch, with_numbers
from longhmm.target.systematic import UnequalSampling, Windows
from longhmm.target.target import exact

STRETCH = 2048
# Of a coordinate. Central differences are wrong by its square: rare transitions have a curvature of 1 beside ones of a
# million, and one-sided differences would drown it.
STEP = 1e-4
# Rows times gradients spent on one information matrix. It shapes steps and no target: of overlapping states with
# transitions that are hardly ever seen, curvatures come out between half and twice what all data say.
WORK = 5e7
# Rows looked at. What little the data say about rare transitions hangs on few rows: a small part sees too many or none.
FEWEST, MOST = 1 << 14, 1 << 21
BATCH = 64  # points looked at together
BLOCKS_PER_POINT = 16
Progress = Callable[[float], None]


def part_of(sequences: Sequences, size: int) -> Sequences:
    """About `size` observations in stretches spread over the data, with their known states and covariates."""
    part = subsample_data(sequences, pieces=max(size // STRETCH, 1), piece_length=STRETCH)
    return part.run_by(nearby(sequences.executor))


def information_by_differences(
    model: HMM, coordinates: Params, sequences: Sequences, totals: Any, progress: Progress | None = None
) -> np.ndarray:
    """`(P, P)` minus the second derivative of the log posterior, scaled up from a part of long data (F29). `totals` are
    those of an exact pass here; `progress` is called with the share of the matrix that was added."""
    flat = Flat.like(coordinates)
    centre = flat.ravel_numpy(coordinates)
    rows = int(np.clip(WORK / (2 * max(flat.size, 1)), FEWEST, MOST))
    part = sequences if sequences.length <= 2 * rows else part_of(sequences, rows)

    def gradients(vector: np.ndarray) -> np.ndarray:
        """`(2, P)`, of the log posterior on the part, and of the log prior alone."""
        u = flat.unravel(vector)
        whole, likelihood = map(flat.ravel_numpy, exact(model, constrain(model, u), part, u=u)[1][:2])
        return np.stack([whole, whole - likelihood])

    slopes = np.zeros((2, flat.size, flat.size))
    for index, step in enumerate(STEP * np.eye(flat.size)):
        slopes[:, index] = (gradients(centre - step) - gradients(centre + step)) / (2 * STEP)
        if progress is not None:
            progress(1 / flat.size)
    found, prior = slopes
    if part is not sequences:
        share = sequences.length / part.length
        params = constrain(model, coordinates)
        both = totals, exact(model, params, part, u=coordinates)[1].totals
        with jax.enable_x64(True):
            bend = np.asarray(_reparametrisation(model, flat, params, both, share, centre))
        found = (found - prior) * share + prior - bend
    return 0.5 * (found + found.T)


@partial(quick, static_argnames=("flat",))
def _reparametrisation(model: HMM, flat: Flat, params: Params, both: Any, share: Any, centre: Array) -> Array:
    """Second derivative of `d . params` along the coordinates, d what the slope of all data is more than the part's."""
    whole, piece = (natural_score(params, totals) for totals in jax.tree.map(jnp.asarray, both))
    weights = jax.tree.map(lambda one, other: one - share * other, whole, piece)

    def weighted(vector: Array) -> Array:
        at = model.constrain(flat.unravel(vector))
        return sum((jnp.sum(weights[name] * at[name]) for name in weights), jnp.zeros(()))

    return jax.hessian(weighted)(centre)


def score_differences(
    model: HMM,
    centre: Params,
    points: Params,
    sequences: Sequences,
    windows: Windows,
    buffer: int,
    elasticity: np.ndarray,
    unequal: UnequalSampling | None,
    *,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """`(n, P)` differences `g_c(theta) - g_c(theta*)`, each at its own point and random block, without what the control
    variate for counts knows by its `elasticity`, and weights `(n,)`, one over N times the probability of the block."""
    cut, flat, rng = Partition(sequences.offsets, windows.core_length), Flat.like(centre), np.random.default_rng(seed)
    table = None if unequal is None else jax.tree.map(np.asarray, unequal)
    found, weights, run = [], [], _differences[serves_many(model)]
    with jax.enable_x64(True):
        wide, everywhere = ({name: np.asarray(each[name], float) for name in centre} for each in (centre, points))
        for first in range(0, next(iter(points.values())).shape[0], BATCH):
            here = {name: value[first : first + BATCH] for name, value in everywhere.items()}
            size = next(iter(here.values())).shape[0] * BLOCKS_PER_POINT
            numbers = rng.integers(cut.n_blocks if table is None else table.scheme.population, size=size)
            weight = np.ones(size)
            if table is not None:
                numbers, weight = table.find(np, numbers)
                weight = weight * (table.scheme.count / cut.n_blocks)
            weights.append(weight)
            rows, layout = gather(sequences, cut.locate(numbers, buffer), cut.width(buffer), model.lags)
            layout = replace(layout, spans=(buffer, cut.core_length, buffer))
            batch = with_numbers(model, Minibatch(rows, layout, weight).in_groups_of(BLOCKS_PER_POINT))
            found.append(np.asarray(run(model, flat, wide, here, batch, np.asarray(elasticity, float))))
    return np.concatenate(found), np.concatenate(weights)


@partial(either, static_argnames=("flat",))
def _differences(model: HMM, flat: Flat, centre: Any, points: Any, minibatches: Minibatch, elasticity: Array) -> Array:
    def at(coordinates: Any, minibatch: Minibatch) -> tuple[Array, Array]:
        found = windows_of(model, model.constrain(coordinates), minibatch)
        return flat.ravel(scores(model, coordinates, found)), found.transitions

    def moved(inputs: tuple[Any, Minibatch]) -> Array:
        point, minibatch = inputs
        both = jax.tree.map(lambda *each: jnp.stack(each), centre, point)
        (home, away), (counts, _) = jax.vmap(at, (0, None))(both, minibatch)
        foreseen = jax.vmap(lambda known: count_score(model, point, centre, elasticity * known))(counts)
        return away - home - flat.ravel(foreseen)

    return jax.lax.map(moved, (points, minibatches)).reshape(-1, flat.size)
