"""Consecutive rows, as emissions and transition models see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Integer, Shaped


class Rows(NamedTuple):
    """Rows of data; leading axes are shared by all fields, None where there is no such thing."""

    values: Shaped[Any, "*rows D"]
    observed: Bool[Any, "*rows D"]  # False where missing
    states: Integer[Any, "*rows"] = None  # known states, -1 where unknown
    lags: Float[Any, "*rows p D"] = None  # rows before each, the nearest first; NaN where its sequence has no such row
    covariates: Float[Any, "*rows C"] = None

    def padded(self, size: int) -> Rows:
        """The same rows on the host, filled up to `size` with some that were not observed."""

        def more(values: np.ndarray, fill: int) -> np.ndarray:
            return np.concatenate([values, np.full((size - len(values), *values.shape[1:]), fill, values.dtype)])

        pairs = zip(self, BLANK, strict=True)
        return Rows(*(None if values is None else more(values, fill) for values, fill in pairs))


BLANK = Rows(0, 0, -1, 0, 0)  # what stands in rows that fill up others: not observed, in an unknown state
