"""Consecutive rows, as emissions and transition models see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Integer, Shaped


class Rows(NamedTuple):
    """Rows of data; leading axes are shared by all fields, None where there is no such thing.

    Attributes:
        values: `(n, D)`.
        observed: `(n, D)`, False where missing.
        states: `(n,)`, known states, -1 where unknown.
        lags: `(n, p, D)`, the rows before each, the nearest first; NaN where its sequence does not reach back so far.
        covariates: `(n, C)`.
    """

    values: Shaped[Any, "*rows D"]
    observed: Bool[Any, "*rows D"]
    states: Integer[Any, "*rows"] = None
    lags: Float[Any, "*rows p D"] = None
    covariates: Float[Any, "*rows C"] = None

    def padded(self, size: int) -> Rows:
        """The same rows on the host, filled up to `size` with some that were not observed."""

        def more(values: np.ndarray | None, fill: int = 0) -> np.ndarray | None:
            if values is None:
                return None
            filled = np.full((size, *values.shape[1:]), fill, values.dtype)
            filled[: len(values)] = values
            return filled

        return Rows(*(more(values, fill) for values, fill in zip(self, BLANK, strict=True)))


BLANK = Rows(0, 0, -1, 0, 0)  # what stands in rows that fill up others: not observed, in an unknown state
