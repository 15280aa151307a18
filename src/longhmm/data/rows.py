"""Consecutive rows, as emissions and transition models see them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Rows(NamedTuple):
    """Rows of data; leading axes are shared by all fields, None where there is no such thing.

    Attributes:
        values: `(n, D)`.
        observed: `(n, D)`, False where missing.
        states: `(n,)`, known states, -1 where unknown.
        lags: `(n, p, D)`, the rows before each, the nearest first; NaN where its sequence does not reach back so far.
        covariates: `(n, C)`.
    """

    values: Any
    observed: Any
    states: Any = None
    lags: Any = None
    covariates: Any = None
