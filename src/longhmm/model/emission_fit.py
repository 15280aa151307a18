"""Fit the emission of every group of rows on its own: where each state starts.

Any emission will do: some hundred points, drawn from the prior and from the scale of the data, are scored on every
group, and from the best of them Newton's method climbs the log density of the group's rows plus the log prior.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints

from longhmm.errors import ModelError
from longhmm.model.emissions import Emission
from longhmm.model.newton import Coordinates, Derivatives, climb
from longhmm.model.parameter import Parameter, draw_prior

ROWS_PER_GROUP = 256  # rows that stand for a group: a start needs no more
CANDIDATES = 128
CLIMB_STEPS = 60


def fit_groups(
    emission: Emission, n_groups: int, groups: list[np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Natural parameters of an emission with one state per group of rows `(n, D)`; an empty group gets the prior's.

    A group without rows of its own is jittered by a posterior standard deviation, so that no two states are twins.
    """
    rows, weights = _table(groups, emission, rng)
    coordinates = Coordinates(emission.parameters(n_groups))
    with jax.enable_x64(True):
        data = jnp.asarray(rows), jnp.asarray(weights)
        start = _best_candidates(emission, coordinates, data, groups, rng)
        summit = climb(
            lambda u: _derivatives(emission, n_groups, jnp.asarray(u), *data), start, iterations=CLIMB_STEPS, tolerance=1e-9
        )
        empty = np.array([len(group) == 0 for group in groups])
        point = summit.point + _jitter(coordinates, summit.derivatives, empty, rng)
        if not np.isfinite(float(_derivatives(emission, n_groups, jnp.asarray(point), *data).value)):
            point = summit.point
        return {name: np.asarray(value) for name, value in coordinates.params(jnp.asarray(point)).items()}


def _table(groups: list[np.ndarray], emission: Emission, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows `(G, n, D)` and weights `(G, n)`, of one size for all groups so that one compiled program serves."""
    rows = np.broadcast_to(emission._fill(np.float64), (len(groups), ROWS_PER_GROUP, emission.dim)).copy()
    weights = np.zeros(rows.shape[:2])
    for index, group in enumerate(groups):
        if len(group):
            chosen = rng.permutation(len(group))[:ROWS_PER_GROUP]
            rows[index, : len(chosen)] = group[chosen]
            weights[index, : len(chosen)] = 1.0
    return rows, weights


def _scores(emission: Emission, params: dict[str, jax.Array], rows: jax.Array, weights: jax.Array) -> jax.Array:
    """`(G,)`, log density of each group's rows under its own state."""
    logs = jax.vmap(lambda y: emission.log_density(params, y if emission.vector_valued else y[..., 0]))(rows)
    own = jnp.diagonal(logs, axis1=0, axis2=2).T
    return jnp.sum(jnp.where(weights > 0, own, 0.0), axis=1)


@partial(jax.jit, static_argnames=("emission", "n_groups"))
def _derivatives(
    emission: Emission, n_groups: int, vector: jax.Array, rows: jax.Array, weights: jax.Array
) -> Derivatives:
    coordinates = Coordinates(emission.parameters(n_groups))

    def objective(vector: jax.Array) -> jax.Array:
        params = coordinates.params(vector)
        return jnp.sum(_scores(emission, params, rows, weights)) + emission.log_prior(params)

    return coordinates.derivatives(objective, vector)


@partial(jax.jit, static_argnames=("emission", "n_groups"))
def _candidate_scores(
    emission: Emission, n_groups: int, vectors: jax.Array, rows: jax.Array, weights: jax.Array
) -> jax.Array:
    coordinates = Coordinates(emission.parameters(n_groups))
    return jax.lax.map(lambda vector: _scores(emission, coordinates.params(vector), rows, weights), vectors)


def _best_candidates(
    emission: Emission,
    coordinates: Coordinates,
    data: tuple[jax.Array, jax.Array],
    groups: list[np.ndarray],
    rng: np.random.Generator,
) -> np.ndarray:
    """For every state the drawn point under which its group is most probable."""
    pooled = np.concatenate(groups)
    points = [_draw(coordinates, pooled, number % 2 == 1, rng) for number in range(CANDIDATES)]
    vectors = np.stack(points)
    scores = np.array(_candidate_scores(emission, len(groups), jnp.asarray(vectors), *data))
    scores[~np.isfinite(scores)] = -np.inf
    if coordinates.coupled:
        return vectors[int(np.argmax(scores.sum(axis=1)))]
    best = np.argmax(scores, axis=0)
    return vectors[best[coordinates.owner], np.arange(coordinates.size)]


def _draw(coordinates: Coordinates, pooled: np.ndarray, from_data: bool, rng: np.random.Generator) -> np.ndarray:
    """Coordinates of one candidate: drawn from the prior, or near the data where values are on their scale."""
    values: dict[str, Any] = {}
    for name in coordinates.shapes:
        parameter = coordinates.table[name]
        guess = _near_data(parameter, pooled, rng) if from_data else None
        if guess is None:
            try:
                guess = draw_prior(jax.random.key(int(rng.integers(2**31))), parameter)
            except ModelError:  # an improper prior
                guess = _near_data(parameter, pooled, rng)
        if guess is None:
            assert parameter.support is not None
            bijection = biject_to(parameter.support)
            guess = bijection(jnp.asarray(rng.normal(size=bijection.inverse_shape(parameter.shape))))
        values[name] = guess
    vector = np.asarray(coordinates.flatten(values))
    return np.where(np.isfinite(vector), np.clip(vector, -1e300, 1e300), 0.0)


def _near_data(parameter: Parameter, pooled: np.ndarray, rng: np.random.Generator) -> Any:
    """A value that looks like an observation or like the spread of some; None where that means nothing."""
    if len(pooled) == 0:
        return None
    sd = pooled.std(axis=0)
    sd = np.where(sd > 0, sd, np.maximum(np.abs(pooled).max(axis=0), 1e-3))
    tail = parameter.shape[1:]
    factor = np.exp(rng.normal(scale=1.0, size=parameter.shape))
    if parameter.support is constraints.real or parameter.support == constraints.real:
        chosen = pooled[rng.integers(len(pooled), size=parameter.shape[0])]
        return chosen.reshape(parameter.shape) if chosen[0].size == np.prod(tail, dtype=int) else None
    if parameter.support == constraints.positive and tail in ((), sd.shape):
        return factor * (float(sd.mean()) if tail == () else sd)
    if parameter.support == constraints.positive_definite and tail == sd.shape * 2:
        return factor[:, :1, :1] * np.diag(sd**2)
    return None


def _jitter(
    coordinates: Coordinates, at: Derivatives, empty: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    curvature = np.abs(np.diag(np.asarray(at.hessian)))
    sd = np.where(curvature > 1e-8, 1.0 / np.sqrt(np.maximum(curvature, 1e-8)), 1e-3)
    moved = np.zeros(coordinates.size, bool) if coordinates.coupled else empty[coordinates.owner]
    return np.where(moved, sd * rng.normal(size=coordinates.size), 0.0)
