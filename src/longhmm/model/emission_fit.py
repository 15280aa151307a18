"""Fit the emission of every group of rows on its own: where each state starts.

Any emission will do: some hundred points on the scale of the data are scored on every group, and from the best of them
Newton's method climbs the log density of the group's rows plus the log prior.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints

from longhmm.errors import ModelError
from longhmm.model.emissions.base import Emission
from longhmm.model.newton import Coordinates, Derivatives, climb
from longhmm.model.parameters import Parameter, draw_prior

ROWS_PER_GROUP = 256  # rows that stand for a group: a start needs no more
CANDIDATES = 256
CLIMB_STEPS = 60


def fit_groups(
    emission: Emission, n_groups: int, groups: list[np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Natural parameters of an emission with one state per group of rows `(n, D)`; an empty group gets the prior's.

    A group without rows of its own is jittered by a posterior standard deviation, so that no two states are twins.
    """
    closed = _closed_form(emission, groups, rng)
    if closed is not None:
        return closed
    coordinates = Coordinates(emission.parameters(n_groups))
    with jax.enable_x64(True):
        rows, weights = _table(groups, emission, rng)
        data = jnp.asarray(rows), jnp.asarray(weights)
        start = _best_candidates(emission, coordinates, data, groups, rng)
        summit = climb(
            lambda u: _derivatives(emission, n_groups, jnp.asarray(u), *data),
            start,
            iterations=CLIMB_STEPS,
            tolerance=1e-9,
        )
        empty = np.array([len(group) == 0 for group in groups])
        point = summit.point + _jitter(coordinates, summit.derivatives, empty, rng)
        if not np.isfinite(float(_derivatives(emission, n_groups, jnp.asarray(point), *data).value)):
            point = summit.point
        return {name: np.asarray(value) for name, value in _natural(emission, n_groups, point).items()}


@partial(jax.jit, static_argnames=("n_groups",))
def _natural(emission: Emission, n_groups: int, point: jax.Array) -> dict[str, jax.Array]:
    return Coordinates(emission.parameters(n_groups)).params(point)


def _closed_form(
    emission: Emission, groups: list[np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray] | None:
    """The most probable parameters given some rows of every group, if groups are large and it has a closed form."""
    if type(emission).fit is Emission.fit or min(len(group) for group in groups) < 4 * (emission.dim + 1):
        return None
    return emission.fit([group[rng.permutation(len(group))[:ROWS_PER_GROUP]] for group in groups])


def _table(groups: list[np.ndarray], emission: Emission, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows `(G, n, D)` and weights `(G, n)`, of one size for all groups so that one compiled program serves."""
    rows = np.broadcast_to(emission.fill(np.float64), (len(groups), ROWS_PER_GROUP, emission.dim)).copy()
    weights = np.zeros(rows.shape[:2])
    for index, group in enumerate(groups):
        if len(group):
            chosen = rng.permutation(len(group))[:ROWS_PER_GROUP]
            rows[index, : len(chosen)] = group[chosen]
            weights[index, : len(chosen)] = 1.0
    return rows, weights


def preferences(emission: Emission, n_groups: int, groups: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """`(state, group)`, how well a group's rows suit each state's prior: log of their mean likelihood over draws."""
    with jax.enable_x64(True):
        rows, weights = _table(groups, emission, rng)
        key = jax.random.key(int(rng.integers(2**31)))
        vectors = _prior_draws(emission, n_groups, CANDIDATES, key)
        scores = _candidate_scores(emission, n_groups, vectors, jnp.asarray(rows), jnp.asarray(weights))
        means = jax.nn.logsumexp(jnp.nan_to_num(scores, nan=-np.inf), axis=0).T
    return np.maximum(np.asarray(means), -1e12)


def _scores(emission: Emission, params: dict[str, jax.Array], rows: jax.Array, weights: jax.Array) -> jax.Array:
    """`(group, state)`, log density of each group's rows under each state."""
    logs = jax.vmap(lambda y: emission.log_density(params, y if emission.vector_valued else y[..., 0]))(rows)
    return jnp.sum(jnp.where(weights[:, :, None] > 0, logs, 0.0), axis=1)


@partial(jax.jit, static_argnames=("n_groups",))
def _derivatives(
    emission: Emission, n_groups: int, vector: jax.Array, rows: jax.Array, weights: jax.Array
) -> Derivatives:
    coordinates = Coordinates(emission.parameters(n_groups))

    def objective(vector: jax.Array) -> jax.Array:
        params = coordinates.params(vector)
        return jnp.trace(_scores(emission, params, rows, weights)) + emission.log_prior(params)

    return coordinates.derivatives(objective, vector)


@partial(jax.jit, static_argnames=("n_groups",))
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
    vectors = _guesses(coordinates, CANDIDATES, pooled, rng)
    scores = np.array(_candidate_scores(emission, len(groups), jnp.asarray(vectors), *data))
    scores = np.diagonal(scores, axis1=1, axis2=2).copy()
    scores[~np.isfinite(scores)] = -np.inf
    if coordinates.coupled:
        return vectors[int(np.argmax(scores.sum(axis=1)))]
    best = np.argmax(scores, axis=0)
    return vectors[best[coordinates.owner], np.arange(coordinates.size)]


def _guesses(coordinates: Coordinates, count: int, pooled: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Coordinates of candidates, `(count, P)`, drawn by what a parameter could mean given its region and shape."""
    columns = [np.zeros((count, 0))]
    for name, shape in coordinates.shapes.items():
        parameter = coordinates.table[name]
        assert parameter.support is not None
        u = rng.normal(scale=1.5, size=(count, *shape))
        if len(pooled):
            near = _near_data(parameter, count, pooled, rng)
            if near is not None:
                # One in four stays as it is: the parameter may have nothing to do with the scale of the data.
                keep = rng.random((count, *[1] * len(shape))) < 0.25
                u = np.where(keep, u, np.asarray(biject_to(parameter.support).inv(jnp.asarray(near))))
        columns.append(u.reshape(count, -1))
    vectors = np.concatenate(columns, axis=1)
    return np.where(np.isfinite(vectors), vectors, 0.0)


def _near_data(parameter: Parameter, count: int, pooled: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Values on the scale of the data, `(count, K, ...)`; None where the region has no scale.

    A real number may be an observation or the logarithm of a spread, a positive one a power of a spread.
    """
    sd = pooled.std(axis=0)
    sd = np.where(sd > 0, sd, np.maximum(np.abs(pooled).max(axis=0), 1e-3))
    lead, tail, support = (count, parameter.shape[0]), parameter.shape[1:], parameter.support
    scalar = tail == () or tail != sd.shape
    noise = rng.normal(size=(count, *parameter.shape))
    spread = sd.mean() if scalar else sd
    if support == constraints.positive:
        power = rng.choice([-1.0, 1.0, 1.0, 2.0], size=(count, *[1] * len(parameter.shape)))
        return np.exp(noise + power * np.log(spread))
    if support == constraints.real:
        chosen = pooled[rng.integers(len(pooled), size=lead)]
        chosen = chosen[(..., 0) + (None,) * len(tail)] if scalar else chosen
        logs = rng.random((count, *[1] * len(parameter.shape))) < 0.25
        return np.where(logs, np.log(spread) + noise, np.broadcast_to(chosen, noise.shape))
    if support == constraints.ordered_vector:
        return np.sort(pooled[:, 0][rng.integers(len(pooled), size=(count, *parameter.shape))] + 1e-3 * spread * noise)
    if support == constraints.positive_definite and tail == sd.shape * 2:
        return np.exp(noise[..., :1, :1]) * np.diag(sd**2)
    if support == constraints.lower_cholesky and tail == sd.shape * 2:
        return np.exp(0.5 * noise[..., :1, :1]) * np.diag(sd)
    return None


@partial(jax.jit, static_argnames=("n_groups", "count"))
def _prior_draws(emission: Emission, n_groups: int, count: int, key: jax.Array) -> jax.Array:
    """Coordinates `(count, P)` of draws from the prior, normal where that is improper."""
    coordinates = Coordinates(emission.parameters(n_groups))
    columns = [jnp.zeros((count, 0))]
    for index, (name, shape) in enumerate(coordinates.shapes.items()):
        parameter, own_key = coordinates.table[name], jax.random.fold_in(key, index)
        try:
            values = draw_prior(own_key, parameter._replace(shape=(count, *parameter.shape)))
            u = biject_to(parameter.support).inv(values)
        except ModelError:
            u = jax.random.normal(own_key, (count, *shape))
        columns.append(u.reshape(count, -1))
    return jnp.concatenate(columns, axis=1)


def _jitter(coordinates: Coordinates, at: Derivatives, empty: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    curvature = np.abs(np.diag(np.asarray(at.hessian)))
    sd = np.where(curvature > 1e-8, 1.0 / np.sqrt(np.maximum(curvature, 1e-8)), 1e-3)
    moved = np.zeros(coordinates.size, bool) if coordinates.coupled else empty[coordinates.owner]
    return np.where(moved, sd * rng.normal(size=coordinates.size), 0.0)
