"""Tables that print to the digits that matter: those of the standard deviation beside them."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

WHOLE = ("ess_bulk", "ess_tail", "ess")
UNROUNDED = 12  # decimals that are shown at most


class SummaryTable(pd.DataFrame):
    """A table with columns `mean` and `sd`, of numbers as they are; only what is printed is rounded."""

    @property
    def _constructor(self) -> Any:
        return SummaryTable

    def shown(self) -> pd.DataFrame:
        """The same as text: every row to two digits of its standard deviation, R-hat to three decimals."""
        if "sd" not in self.columns or "mean" not in self.columns:
            return pd.DataFrame(self)
        decimals = [_decimals(sd) for sd in self["sd"]]
        found = {}
        for name in self.columns:
            if name in WHOLE:
                found[name] = [_text(value, 0) for value in self[name]]
            elif name == "r_hat":
                found[name] = [_text(value, 3) for value in self[name]]
            else:
                found[name] = [_text(value, each) for value, each in zip(self[name], decimals, strict=True)]
        return pd.DataFrame(found, index=self.index)

    def __repr__(self) -> str:
        """All columns, however narrow pandas takes the terminal to be; of many rows the first and the last."""
        return str(self.shown().to_string(max_rows=pd.get_option("display.max_rows")))

    def _repr_html_(self) -> str:
        return str(self.shown().to_html(border=0, max_rows=pd.get_option("display.max_rows")))


def _decimals(sd: Any) -> int:
    known = isinstance(sd, float) and sd > 0 and math.isfinite(sd)
    return min(max(1 - math.floor(math.log10(sd)), 0), UNROUNDED) if known else 3


def _text(value: Any, decimals: int) -> Any:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:,.{decimals}f}"
