"""Newton's method on an emission's few parameters, and the fit of every group of rows on its own, where states start.
Parameters of different states do not meet in a log density, so second derivatives are made of one block per state, and
as many directional derivatives as one state has coordinates give all blocks at once."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.emissions import Emission
from longhmm.model.parameters import (
    Parameter,
    Parameters,
    Params,
    constrain,
    coordinate_shapes,
    draw_prior,
    unconstrain,
)

ROWS_PER_GROUP = 256  # rows that stand for a group: a start needs no more
CANDIDATES = 256
NEWTON_STEPS = 60


class Derivatives(NamedTuple):
    """Value `()`, gradient `(P,)` and second derivatives `(P, P)` of a function at one point."""

    value: jax.Array
    gradient: jax.Array
    hessian: jax.Array


class Coordinates:
    """All free parameters of a table as one vector of length `size`. `owner[i]` is the state to which coordinate i
    belongs; all are owned by state 0 where a prior couples the states."""

    def __init__(self, table: Parameters) -> None:
        self.table = table
        self.shapes = coordinate_shapes(table)
        # One event of a prior or of its support may span the states, such as values in rising order.
        free: list[Any] = [table[name] for name in self.shapes]
        events = [max(each.support.event_dim, each.prior.event_dim if each.prior else 0) for each in free]
        self.coupled = any(event >= len(each.shape) for event, each in zip(events, free, strict=True))
        self._sizes = [int(np.prod(shape, dtype=int)) for shape in self.shapes.values()]
        self.size, first = sum(self._sizes), 0
        owner, column = [np.zeros(0, int)], [np.zeros(0, int)]
        for size, shape in zip(self._sizes, self.shapes.values(), strict=True):
            n_states = 1 if self.coupled else shape[0]
            owner.append(np.repeat(np.arange(n_states), size // n_states))
            column.append(first + np.tile(np.arange(size // n_states), n_states))
            first += size // n_states
        self.owner, self._column = np.concatenate(owner), np.concatenate(column)
        # One direction moves a coordinate of every state at once.
        self._directions = (np.arange(first)[:, None] == self._column).astype(np.float64)

    def flatten(self, params: Params) -> jax.Array:
        """Natural parameters to one vector of coordinates."""
        u = unconstrain(self.table, params)
        return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(u[name]) for name in self.shapes)])

    def params(self, vector: jax.Array) -> dict[str, jax.Array]:
        """One vector of coordinates to natural parameters, fixed ones included."""
        return constrain(self.table, self.parts(vector))

    def parts(self, vector: Any) -> dict[str, Any]:
        """One vector of coordinates by name, in their shapes."""
        ends = np.cumsum([0, *self._sizes]).tolist()
        spans = zip(self.shapes.items(), ends[:-1], ends[1:], strict=True)
        return {name: vector[first:last].reshape(shape) for (name, shape), first, last in spans}

    def derivatives(self, objective: Callable[[jax.Array], jax.Array], vector: jax.Array) -> Derivatives:
        """Value and derivatives of a sum over states of functions of their own coordinates."""
        value, gradient = jax.value_and_grad(objective)(vector)
        if self.size == 0:
            return Derivatives(value, gradient, jnp.zeros((0, 0)))
        # One direction at a time: data enter the objective, and all directions at once would need their memory too.
        columns = self._along(lambda direction: jax.jvp(jax.grad(objective), (vector,), (direction,))[1], vector)
        hessian = columns[self._column].T * (self.owner[:, None] == self.owner)
        return Derivatives(value, gradient, 0.5 * (hessian + hessian.T))

    def squared_slopes(
        self, logs: Callable[[jax.Array], jax.Array], vector: jax.Array, weights: jax.Array, owners: np.ndarray
    ) -> jax.Array:
        """`(P,)`, weighted sums of squared derivatives of `logs(vector)` `(R, K)`, whose column k depends on the
        coordinates of state `owners[k]` alone."""
        if self.size == 0:
            return vector

        def squares(direction: jax.Array) -> jax.Array:
            slope = jax.jvp(logs, (vector,), (direction,))[1]
            return jnp.sum(jnp.where(weights > 0, weights * slope**2, 0.0), axis=0)

        sums = self._along(squares, vector)[self._column]
        return jnp.sum(sums if self.coupled else sums * (self.owner[:, None] == owners), axis=1)

    def _along(self, function: Callable[[jax.Array], jax.Array], vector: jax.Array) -> jax.Array:
        return jax.lax.map(function, jnp.asarray(self._directions, vector.dtype))


def ascent_direction(gradient: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    """Newton's step with every curvature made negative: a direction in which the function rises."""
    if gradient.size == 0:
        return gradient
    if not np.all(np.isfinite(hessian)):
        return gradient / max(1.0, float(np.abs(gradient).max()))
    size = np.abs(np.diag(hessian))
    scale = 1.0 / np.sqrt(np.where(size > 0, size, max(float(size.max()), 1.0)))
    values, vectors = np.linalg.eigh(-hessian * scale[:, None] * scale)
    return scale * (vectors @ ((vectors.T @ (scale * gradient)) / np.maximum(np.abs(values), 1e-8)))


def newton_ascent(
    evaluate: Callable[[np.ndarray], Derivatives], start: np.ndarray, *, iterations: int = 50, tolerance: float = 1e-12
) -> tuple[np.ndarray, Derivatives]:
    """Where damped Newton steps end, and the derivatives there: the predicted gain is below `tolerance`, relative to
    the value."""
    at: Any = lambda point: jax.tree.map(np.asarray, evaluate(point))  # noqa: E731 compared on the host
    point, here = start, at(start)
    for _ in range(iterations):
        direction = ascent_direction(here.gradient, here.hessian)
        promised = float(here.gradient @ direction)
        if not promised > tolerance * max(1.0, abs(float(here.value))):
            break
        fraction, there = 1.0, at(point + direction)
        while not there.value >= here.value + 1e-4 * fraction * promised and fraction > 1e-6:
            fraction *= 0.25
            there = at(point + fraction * direction)
        if not there.value > here.value:
            break
        point, here = point + fraction * direction, there
    return point, here


def fit_groups(emission: Emission, groups: list[Rows], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Natural parameters of an emission with one state per group of rows. Some hundred points on the scale of the data
    are scored on every group, and from the best of them Newton's method maximises the log density of the group's rows
    plus the log prior. An empty group gets the prior's, jittered by a posterior standard deviation, so that no two
    states are identical."""
    n_groups, sizes = len(groups), np.array([len(group.values) for group in groups])
    if type(emission).fit is not Emission.fit and sizes.min() >= 4 * (emission.dim + 1):
        closed = emission.fit(
            [group.values[rng.permutation(n)[:ROWS_PER_GROUP]] for group, n in zip(groups, sizes, strict=True)]
        )
        if closed is not None:
            return closed
    coordinates = Coordinates(emission.parameters(n_groups))
    with jax.enable_x64(True):
        table = _table(emission, groups, rng)
        guesses = _guesses(coordinates, np.concatenate([group.values for group in groups]), rng)
        evaluate = partial(_derivatives, emission, n_groups, table, guesses, np.False_)
        scores = _derivatives(emission, n_groups, table, guesses, np.True_, guesses[0])[2]
        suits = np.nan_to_num(np.diagonal(scores, axis1=1, axis2=2), nan=-np.inf, posinf=-np.inf)
        # For every state the guess under which its group is most probable; one for all states that are coupled.
        chosen = np.argmax(suits.sum(axis=1, keepdims=True) if coordinates.coupled else suits, axis=0)
        start = guesses[chosen[coordinates.owner], np.arange(coordinates.size)]
        best, at = newton_ascent(lambda point: evaluate(point)[0], start, iterations=NEWTON_STEPS, tolerance=1e-9)
        curvature = np.abs(np.diag(at.hessian))
        sd = np.where(curvature > 1e-8, 1.0 / np.sqrt(np.maximum(curvature, 1e-8)), 1e-3)
        moved = np.zeros(coordinates.size, bool) if coordinates.coupled else (sizes == 0)[coordinates.owner]
        point = best + np.where(moved, sd * rng.normal(size=coordinates.size), 0.0)
        there, params, _ = evaluate(point)
        return dict(jax.tree.map(np.asarray, params if np.isfinite(float(there.value)) else evaluate(best)[1]))


def preferences(emission: Emission, groups: list[Rows], rng: np.random.Generator) -> np.ndarray:
    """`(state, group)`, how well a group's rows suit each state's prior: log of their mean likelihood over draws."""
    with jax.enable_x64(True):
        table = _table(emission, groups, rng)
        vectors = _prior_draws(emission, len(groups), CANDIDATES, jax.random.key(int(rng.integers(2**31))))
        scores = _candidate_scores(emission, len(groups), table, vectors)
        means = jax.nn.logsumexp(jnp.nan_to_num(scores, nan=-np.inf), axis=0).T
    return np.maximum(np.asarray(means), -1e12)


def _table(emission: Emission, groups: list[Rows], rng: np.random.Generator) -> Rows:
    """Some rows `(G, n, ...)` of every group, of one size for all groups so that one compiled function serves."""

    def chosen(group: Rows) -> Rows:
        order = rng.permutation(len(group.values))[:ROWS_PER_GROUP]
        return jax.tree.map(lambda each: each[order], group).padded(ROWS_PER_GROUP)

    return jax.tree.map(lambda *each: np.stack(each), *map(chosen, groups))


_inverse = jax.jit(lambda support, values: biject_to(support).inv(values))


def _scores(emission: Emission, params: dict[str, jax.Array], table: Rows) -> jax.Array:
    """`(group, state)`, log density of each group's rows under each state."""
    logs = jax.vmap(lambda rows: emission.log_likelihoods(params, rows))(table)
    return jnp.sum(logs, axis=(1, 2) if emission.couples else 1)


@partial(jax.jit, static_argnames=("n_groups",))
def _derivatives(
    emission: Emission, n_groups: int, table: Rows, candidates: Any, scored: Any, vector: Any
) -> tuple[Derivatives, Params, jax.Array]:
    """Of the log density of every group in its own state plus the log prior; the natural parameters; and, where these
    are asked for, scores of the candidates: one program is soon compiled, two are not."""
    coordinates, of_candidates = Coordinates(emission.parameters(n_groups)), partial(_scores_of, emission, n_groups)
    nothing = jnp.zeros((len(candidates), n_groups, n_groups))
    scores = jax.lax.cond(scored, lambda: of_candidates(table, candidates), lambda: nothing)

    def objective(vector: jax.Array) -> jax.Array:
        params = coordinates.params(vector)
        return jnp.trace(_scores(emission, params, table)) + emission.log_prior(params)

    return coordinates.derivatives(objective, vector), coordinates.params(vector), scores


def _scores_of(emission: Emission, n_groups: int, table: Rows, vectors: jax.Array) -> jax.Array:
    coordinates = Coordinates(emission.parameters(n_groups))
    return jax.lax.map(lambda vector: _scores(emission, coordinates.params(vector), table), vectors)


_candidate_scores = jax.jit(_scores_of, static_argnames=("n_groups",))


def _guesses(coordinates: Coordinates, pooled: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Coordinates of candidates, `(count, P)`, drawn by what a parameter could mean given its region and shape."""
    columns = [np.zeros((CANDIDATES, 0))]
    for name, shape in coordinates.shapes.items():
        parameter = coordinates.table[name]
        u = rng.normal(scale=1.5, size=(CANDIDATES, *shape))
        near = _near_data(parameter, CANDIDATES, pooled, rng) if len(pooled) else None
        if near is not None:
            # One in four stays as it is: the parameter may have nothing to do with the scale of the data.
            keep = rng.random((CANDIDATES, *[1] * len(shape))) < 0.25
            u = np.where(keep, u, near)
        columns.append(u.reshape(CANDIDATES, -1))
    vectors = np.concatenate(columns, axis=1)
    return np.where(np.isfinite(vectors), vectors, 0.0)


def _near_data(parameter: Parameter, count: int, pooled: np.ndarray, rng: np.random.Generator) -> Any:
    """Coordinates of values on the scale of the data, `(count, K, ...)`; None where the region has no scale. A real
    number may be an observation or the logarithm of a spread, a positive one a power of a spread."""
    sd = pooled.std(axis=0)
    sd = np.where(sd > 0, sd, np.maximum(np.abs(pooled).max(axis=0), 1e-3))
    lead, tail, support = (count, parameter.shape[0]), parameter.shape[1:], parameter.support
    scalar = tail == () or tail != sd.shape
    noise = rng.normal(size=(count, *parameter.shape))
    spread, one_each = sd.mean() if scalar else sd, (count, *[1] * len(parameter.shape))
    if support == constraints.positive:
        return noise + rng.choice([-1.0, 1.0, 1.0, 2.0], size=one_each) * np.log(spread)
    if support == constraints.real:
        chosen = pooled[rng.integers(len(pooled), size=lead)]
        chosen = chosen[(..., 0) + (None,) * len(tail)] if scalar else chosen
        return np.where(rng.random(one_each) < 0.25, np.log(spread) + noise, np.broadcast_to(chosen, noise.shape))
    if support == constraints.ordered_vector:
        drawn = pooled[:, 0][rng.integers(len(pooled), size=(count, *parameter.shape))]
        return _inverse(support, np.sort(drawn + 1e-3 * spread * noise))
    if support == constraints.positive_definite and tail == sd.shape * 2:
        return _inverse(support, np.exp(noise[..., :1, :1]) * np.diag(sd**2))
    if support == constraints.lower_cholesky and tail == sd.shape * 2:
        return _inverse(support, np.exp(0.5 * noise[..., :1, :1]) * np.diag(sd))
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
