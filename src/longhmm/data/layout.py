"""How chunks lie in rows: windows of a minibatch and chunks of a full pass alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("begin", "left", "core", "right", "opens"),
    meta_fields=("spans",),
)
@dataclass(frozen=True, eq=False)
class Layout:
    """W chunks of consecutive rows, `(W,)` integers each. A chunk without a core at the end of the list is padding.

    Attributes:
        begin: row of the first core time.
        left, right: rows before and behind the core that only carry messages; fewer than in other chunks only where
            a sequence begins or ends.
        core: rows whose marginals are asked for.
        opens: 1 where the row `begin - left` is the first of its sequence.
        spans: the longest `left`, `core` and `right`, for backends whose programs have fixed shapes.
    """

    begin: Any
    left: Any
    core: Any
    right: Any
    opens: Any
    spans: tuple[int, int, int] = (0, 0, 0)

    @property
    def size(self) -> int:
        """How many chunks there are, W."""
        return int(self.begin.shape[-1])

    def moved(self, rows: Any) -> Layout:
        """The same chunks where the data begin `rows` later."""
        return replace(self, begin=self.begin - rows)

    def trimmed(self, left: Any, right: Any, spans: tuple[int, int, int]) -> Layout:
        """The same cores with at most so many rows before and behind them."""
        opens = self.opens * (self.left <= left)
        return Layout(self.begin, self.left.clip(0, left), self.core, self.right.clip(0, right), opens, spans)

    def padded(self, size: int) -> Layout:
        """The same chunks on the host, filled up to `size` with some that have no rows."""
        spare = (0, size - self.size)
        arrays = (np.pad(np.asarray(each), spare) for each in (self.begin, self.left, self.core, self.right))
        begin, left, core, right = (each.astype(np.int32) for each in arrays)
        opens = np.pad(np.asarray(self.opens), spare, constant_values=1).astype(np.int32)
        return Layout(begin, left, core, right, opens, self.spans)


def ladder(length: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: shapes from it let data of similar size share programs."""
    step = 1
    while True:
        for rung in (step, step + step // 2):
            if rung >= length:
                return rung
        step *= 2
