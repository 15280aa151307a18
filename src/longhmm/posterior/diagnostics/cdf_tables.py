"""Distribution functions of many observations: of every one, or, where that takes long, by tables of fewer values.

Counts are looked up. Between values of a continuous function its log odds are interpolated by cubic splines, with nodes
added until the function itself, evaluated half way between them, agrees.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.layout import ladder
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.emissions import Emission
from longhmm.model.hmm import HMM
from longhmm.posterior.draws import in_float64

AT_ONCE = 1 << 16  # rows whose functions are evaluated together: longer data share the program
POINTS = 1 << 10  # values of a table that are evaluated together
FEWEST = 1 << 14  # rows for which splines are made
ROUNDS = 16  # of new nodes
FIRST = 65  # nodes
SHARE = 4  # rows for each value of a table, at least
RELATIVE = 1e-9  # error of a probability, or of what it lacks to 1
FAINT = 1e-12  # probability below which the error does not shrink with it

# Of values (n, D): P(y_d < value | x = k) and P(y_d <= value | x = k), (n, K, D) each, or one where they are the same.
Below = Callable[[Rows], list[np.ndarray]]


@jax.jit
def _of_rows(model: HMM, params: Mapping[str, Any], rows: Rows) -> tuple[jax.Array, ...] | None:
    found = model.emission.cdf_of_rows(params, rows)
    return found[:1] if found is not None and found[0] is found[1] else found


def distribution_functions(model: HMM, params: Mapping[str, Any], part: Sequences) -> Below | None:
    """What gives those of rows of `part`, whose missing values are filled; None where the emission has none."""
    first = part.rows(0, 1, model.lags)
    if jax.eval_shape(_of_rows, model, params, first) is None:
        return None
    emission, size = model.emission.untied, min(AT_ONCE, ladder(part.length))
    alone = type(emission).cdf_of_rows is Emission.cdf_of_rows and not (emission.lags or model.emission.couples)
    table: Below | None = None
    if alone and emission.support.is_discrete:
        table = _counts(model, params, part)
    elif alone and type(emission).cdf is Emission.cdf and part.length >= FEWEST:
        table = _splines(model, params, part)
    return table or (lambda rows: _exact(model, params, rows, size))


def weighted(chances: np.ndarray, of_states: np.ndarray) -> np.ndarray:
    """`(n, D)`, the mean over states of `(n, K, D)`."""
    features = np.moveaxis(of_states, -1, 0)
    return np.stack([np.einsum("nk,nk->n", chances, each) for each in features], axis=1)


def _exact(model: HMM, params: Mapping[str, Any], rows: Rows, size: int) -> list[np.ndarray]:
    """Of all rows, so many at a time."""
    parts = []
    for start in range(0, len(rows.values), size):
        own = Rows(*(None if each is None else each[start : start + size] for each in rows))
        n = len(own.values)
        if n < size:
            own = own.padded(size)
            own.values[n:] = own.values[0]  # in the support
        parts.append([each[:n] for each in in_float64(_of_rows, model, params, own)])
    return [np.concatenate(each) if len(each) > 1 else each[0] for each in zip(*parts, strict=True)]


def _counts(model: HMM, params: Mapping[str, Any], part: Sequences) -> Below | None:
    """By a table of all whole numbers between the smallest and the largest, where these are few."""
    values = _observed(part)
    low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    if not (high - low + 1) * SHARE <= part.length:  # or nothing was observed
        return None
    each = np.repeat(np.arange(low, high + 1.0)[:, None], part.dim, axis=1)
    tables = _at(model, params, each)

    def look_up(rows: Rows) -> list[np.ndarray]:
        which = (np.clip(rows.values, low, high) - low).astype(np.int64)  # what is missing may be anything
        return [np.stack([one[which[:, d], :, d] for d in range(part.dim)], axis=2) for one in tables]

    return look_up


def _splines(model: HMM, params: Mapping[str, Any], part: Sequences) -> Below | None:
    """By a spline for each feature; None where one needs too many nodes."""
    values = _observed(part)
    if not np.isfinite(values).any(axis=0).all():
        return None
    found = [_spline(model, params, values, feature, part.length // SHARE) for feature in range(part.dim)]
    if None in found:
        return None

    def interpolate(rows: Rows) -> list[np.ndarray]:
        parts = [_probability(each(rows.values[:, d])) for d, each in enumerate(found)]
        return [np.stack(parts, axis=2)]

    return interpolate


def _spline(model: HMM, params: Mapping[str, Any], values: np.ndarray, feature: int, most: int) -> Any:
    """Log odds `(n, K)` of one feature's distribution functions, as a function of its values `(n,)`. Its nodes are
    spaced in a coordinate in which tails that fall by powers, at zero or far out, are straight."""
    from scipy.interpolate import CubicSpline

    seen = values[:, feature][np.isfinite(values[:, feature])]
    some = values[np.isfinite(values).all(axis=1)][:1]  # what stands in the other features
    few, ends = seen[:: max(1, len(seen) // 4096)], np.array([seen.min(), seen.max()])
    positive = model.emission.support is constraints.positive
    low, centre, high = np.quantile(few, [0.25, 0.5, 0.75])
    if not (low < high and len(some)):
        return None

    def coordinate(points: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(points) if positive else np.arcsinh((points - centre) / (high - low)))

    def odds(at: np.ndarray) -> np.ndarray:
        each = np.repeat(some, len(at), axis=0)
        each[:, feature] = np.exp(at) if positive else centre + (high - low) * np.sinh(at)
        return _log_odds(_at(model, params, each)[0][:, :, feature])

    begin, end = coordinate(ends)
    nodes = np.linspace(begin, end, FIRST)
    at, begins = odds(nodes), np.arange(len(nodes) - 1)  # intervals that are still to be looked at
    for _ in range(ROUNDS):
        spline = CubicSpline(nodes, at)
        middle = 0.5 * (nodes[begins] + nodes[begins + 1])
        exact = odds(middle)
        expected, guessed = _probability(exact), _probability(spline(middle))
        allowed = RELATIVE * (np.minimum(expected, 1 - expected) + FAINT) + np.finfo(float).eps * expected
        wrong = ~np.all(np.abs(guessed - expected) <= allowed, axis=1)
        if not wrong.any():
            return lambda points: spline(coordinate(points))
        # Both halves of what was wrong; the new nodes serve all.
        order = np.argsort(np.append(nodes, middle), kind="stable")
        place = np.argsort(order)[len(nodes) :][wrong]
        nodes, at = np.append(nodes, middle)[order], np.concatenate([at, exact])[order]
        begins = np.unique(np.concatenate([place - 1, place]))
        if len(nodes) + len(begins) > most:
            break
    return None


def _at(model: HMM, params: Mapping[str, Any], values: np.ndarray) -> list[np.ndarray]:
    """Functions of values `(n, D)`, so many at a time that all tables share a program."""
    return _exact(model, params, Rows(values, np.ones(values.shape, bool)), POINTS)


def _observed(part: Sequences) -> np.ndarray:
    rows = part.rows(0, part.length)
    return np.where(rows.observed, rows.values, np.nan)


def _log_odds(chance: np.ndarray) -> np.ndarray:
    chance = np.clip(chance, 1e-300, 1 - np.finfo(float).epsneg)
    return np.asarray(np.log(chance) - np.log1p(-chance))


def _probability(log_odds: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-log_odds)))
