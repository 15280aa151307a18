"""Smooth terms of formulas: `s(x)` is a spline whose roughness the data decide, `s(label, bs="re")` a random effect.

A cubic spline is told by its values at k knots (Wood, Generalized Additive Models, 2017, section 5.3). Its columns are
turned such that the roughness, the integral of the squared second derivative, is the sum of squared coefficients: a
smooth curve is one whose coefficients have a small common variance. What has no roughness, a straight line, is a column
of its own.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import cache
from typing import Any

import numpy as np

BASES = ("cr", "cc", "re")
FEWEST = 4  # knots


@cache
def transform() -> Any:
    """The function as formulas call it, which keeps what it learns from the data first met."""
    from formulaic.materializers.types import FactorValues
    from formulaic.utils.stateful_transforms import stateful_transform

    def s(x: Any, bs: str = "cr", k: int = 10, period: float | None = None, _state: Any = None) -> Any:
        values = np.asarray(x)
        _learn(values, bs, k, period, _state)
        found = columns(values, _state)
        return FactorValues(found, kind="numerical", spans_intercept=False, format="{name}[{field}]", encoded=False)

    return stateful_transform(s)


def _learn(x: np.ndarray, bs: str, k: int, period: float | None, state: MutableMapping[str, Any]) -> None:
    """What tells a term on other data: knots and turn of a spline, or levels of labels."""
    if state:
        return
    if bs not in BASES or not isinstance(k, int) or k < FEWEST or (bs == "cc") != (period is not None):
        raise ValueError(f"s(x, bs, k, period) needs bs among {BASES}, k of at least {FEWEST}, and a period with 'cc'")
    if bs == "re":
        state["levels"] = np.unique(x[~np.isnan(x)] if x.dtype.kind == "f" else x).tolist()
        return
    if period is not None:
        knots = np.arange(k + 1) * (period / k)
    elif len(different := np.unique(x[np.isfinite(x)])) >= k:
        knots = np.quantile(different, np.linspace(0.0, 1.0, k))
    else:
        raise ValueError(f"s(x, k={k}) needs at least {k} different values")
    values, vectors = np.linalg.eigh(roughness(knots, period is not None))
    rough = np.flatnonzero(values > 1e-10 * values[-1])
    # Stored: signs, and turns where two are as rough as each other, are the machine's choice.
    state.update(knots=knots.tolist(), cyclic=period is not None)
    state["turn"] = (vectors[:, rough] / np.sqrt(values[rough])).tolist()


def columns(x: np.ndarray, state: Any) -> dict[Any, np.ndarray]:
    """The columns of a term by name: numbers for those that share a variance; NaN where x is missing."""
    if "levels" in state:
        missing = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
        return {index: np.where(missing, np.nan, x == level) for index, level in enumerate(state["levels"])}
    knots, cyclic = np.asarray(state["knots"], np.float64), bool(state["cyclic"])
    x = x.astype(np.float64)
    turned = basis(x, knots, cyclic) @ np.asarray(state["turn"], np.float64)
    found: dict[Any, np.ndarray] = dict(enumerate(turned.T))
    return found if cyclic else {"linear": x, **found}


def _second(knots: np.ndarray, cyclic: bool) -> tuple[np.ndarray, np.ndarray]:
    """Matrices B and D: second derivatives m at knots with values f solve `B m = D f`; at the ends of a spline that is
    not cyclic they are 0 and left out."""
    h, n = np.diff(knots), len(knots) - cyclic  # a cycle's last knot is its first
    inner = np.arange(n) if cyclic else np.arange(1, n - 1)
    before, after = h[inner - 1], h[inner]
    left, right = np.zeros((len(inner), n)), np.zeros((len(inner), n))
    row = np.arange(len(inner))
    for place, one, other in ((inner - 1, before / 6, 1 / before), ((inner + 1) % n, after / 6, 1 / after)):
        left[row, place] += one
        right[row, place] += other
    left[row, inner] += (before + after) / 3
    right[row, inner] -= 1 / before + 1 / after
    return left[:, inner], right


def roughness(knots: np.ndarray, cyclic: bool) -> np.ndarray:
    """`(k, k)`, S of which `f' S f` is the integral of the squared second derivative of the spline with values f."""
    left, right = _second(knots, cyclic)
    found = right.T @ np.linalg.solve(left, right)
    return np.asarray(0.5 * (found + found.T))


def basis(x: np.ndarray, knots: np.ndarray, cyclic: bool) -> np.ndarray:
    """`(n, k)`, X of which `X f` are values at x of the spline with values f at its knots; straight beyond the ends."""
    n, (left, right) = len(knots) - cyclic, _second(knots, cyclic)
    bend = np.linalg.solve(left, right)  # (inner, k), second derivatives
    bend = bend if cyclic else np.pad(bend, ((1, 1), (0, 0)))
    value = np.eye(n)
    at = knots[0] + np.mod(x - knots[0], knots[-1] - knots[0]) if cyclic else np.clip(x, knots[0], knots[-1])
    known = np.where(np.isnan(at), knots[0], at)
    place = np.clip(np.searchsorted(knots, known, side="right") - 1, 0, len(knots) - 2)
    h, up, down = np.diff(knots)[place], known - knots[place], knots[place + 1] - known
    ahead = (place + 1) % n
    found = (down / h)[:, None] * value[place] + (up / h)[:, None] * value[ahead]
    found += ((down**3 / h - h * down) / 6)[:, None] * bend[place] + ((up**3 / h - h * up) / 6)[:, None] * bend[ahead]
    if not cyclic:
        slope = (value[ahead] - value[place]) / h[:, None]
        low, high = -h[:, None] / 6 * bend[ahead], h[:, None] / 6 * bend[place]  # second derivatives at ends are 0
        beyond = (np.where(np.isnan(x), known, x) - known)[:, None]
        found += np.where(beyond < 0, beyond * (slope + low), np.where(beyond > 0, beyond * (slope + high), 0.0))
    return np.where(np.isnan(x)[:, None], np.nan, found)
