"""Tables that print to the digits that matter: those of the standard deviation beside them."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

DECIMALS = {"ess_bulk": 0, "ess_tail": 0, "ess": 0, "r_hat": 3}  # of columns that have as many in every row
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
        own = [_decimals(sd) for sd in self["sd"]]
        decimals = {name: [DECIMALS[name]] * len(self) if name in DECIMALS else own for name in self.columns}
        found = {name: [*map(_text, self[name], each)] for name, each in decimals.items()}
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
