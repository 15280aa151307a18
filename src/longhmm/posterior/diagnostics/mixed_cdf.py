"""Distribution functions of observations given those before them: those of states, weighted by the predicted states.

The kernel takes them from tables, with the prediction and the normal quantile in one pass over filtered probabilities.
What no table tells is evaluated at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from longhmm.backends import mixed
from longhmm.backends.block import Own
from longhmm.backends.stream import stream
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.hmm import HMM
from longhmm.posterior.diagnostics.cdf_tables import FAINTEST, Below, Table, padded, tables, weighted

EDGE = 1e-12  # keeps the normal quantile finite


class Found(NamedTuple):
    """Of all rows, a row for each feature, NaN where missing."""

    quantiles: np.ndarray  # (D, n) of the normal distribution, at P(y_t <= observed | y_0 .. y_{t-1})
    given: np.ndarray  # (D, n) the same at P(y_t <= observed | x_t), with a path of states
    lowest: np.ndarray  # (D,) the smallest observation


def mixed_cdf(
    model: HMM, params: Mapping[str, Any], part: Sequences, exact: Below, seed: int, path: np.ndarray | None = None
) -> Found | None:
    """By tables; None where every row is better evaluated by itself."""
    if model.transitions.varies or (own := tables(model, params, part)) is None:
        return None
    found, rng = MixedCdf(params, part, own, path), np.random.default_rng(seed)
    as_they_are = part.dtype.kind == "f" and not part.has_mask  # NaN where missing, and checked by the pass
    for block in stream(model, params, part, forward_only=True):
        if as_they_are:
            values = part.source.read(block.start, block.stop)
        else:
            rows = part.rows(block.start, block.stop)
            values = np.where(rows.observed, rows.values, np.nan)
        values = np.ascontiguousarray(values, np.float32 if values.dtype == np.float32 else np.float64)
        found.add(block, values, rng.uniform(size=values.shape) if found.counts else None)
        del block  # its memory serves the next one
    return found.finish(exact)


class MixedCdf:
    """Of blocks that come one after the other; `path` `(n,)` are the states of all rows."""

    def __init__(self, params: Mapping[str, Any], part: Sequences, own: list[Table], path: np.ndarray | None) -> None:
        self.part, self.tables, self.path = part, own, path
        self.counts, self.recent = not own[0].shift, np.zeros(len(params["initial"]))
        self.transition, self.initial = (padded(params[name]) for name in ("transition", "initial"))
        self.quantiles, self.lowest = np.empty((part.dim, part.length)), np.full(part.dim, np.inf)
        self.given = np.empty(self.quantiles.shape) if path is not None else self.quantiles[:0]
        self._left: list[tuple[Any, ...]] = []

    def add(self, own: Own, values: np.ndarray, spread: np.ndarray | None) -> None:
        """Rows `(n, D)`, NaN where missing, with their filtered probabilities; counts lie at `spread` of their
        steps."""
        filtered = np.ascontiguousarray(own.probabilities, np.float64)
        rows, offsets = slice(own.start, own.stop), self.part.offsets[:-1]
        opens = offsets[slice(*np.searchsorted(offsets, [own.start, own.stop]))].astype(np.int64) - own.start
        path = None if self.path is None else np.ascontiguousarray(self.path[rows], np.int64)
        results = [each[:, rows] for each in (self.quantiles, self.given) if len(each)]
        asked = mixed.Rows(filtered, self.recent, self.transition, self.initial, opens, values, spread, path)
        found = mixed.mix(self.tables, asked, FAINTEST, self.part.length, results) or self._on_host(own, asked, results)
        self.lowest = np.minimum(self.lowest, found.lowest)
        if len(at := found.left):
            some = (None if each is None else each[at] for each in (values, spread, path))
            self._left.append((own.start + at, self._before(asked, at), *some))
        self.recent = filtered[-1].copy()

    def _before(self, asked: mixed.Rows, at: np.ndarray) -> np.ndarray:
        """Filtered probabilities of the rows before some; before a block's first row lies the block before."""
        return np.where(at[:, None] > 0, asked.filtered[at - 1], asked.recent)

    def _predicted(self, before: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Of some rows of the data, from filtered probabilities of those before them."""
        found = np.asarray(before @ self.transition[:, : before.shape[1]])
        found[np.isin(rows, self.part.offsets[:-1])] = self.initial[: before.shape[1]]
        return found

    def _on_host(self, own: Own, asked: mixed.Rows, results: list[np.ndarray]) -> mixed.Mixed:
        def told(chance: np.ndarray) -> np.ndarray:
            return np.where((chance >= FAINTEST) & (chance <= 1 - FAINTEST), chance, np.nan)

        values, spread, path = asked.values.astype(np.float64), asked.spread, asked.path
        rows = np.arange(len(values))
        predicted = self._predicted(self._before(asked, rows), own.start + rows)
        for d, table in enumerate(self.tables):
            of_states = table.of_states(values[:, d], None if spread is None else spread[:, d])
            results[0][d] = ndtri(told(np.einsum("nk,nk->n", predicted, of_states[:, : predicted.shape[1]])))
            if path is not None:
                results[1][d] = ndtri(told(of_states[np.arange(len(path)), path]))
        untold = np.isnan(sum(results)).T & ~np.isnan(values)
        return mixed.Mixed(np.flatnonzero(untold.any(axis=1)), np.fmin.reduce(values, axis=0, initial=np.inf))

    def finish(self, exact: Below) -> Found:
        """Evaluate what no table told."""
        if self._left:
            parts: Any = [None if each[0] is None else np.concatenate(each) for each in zip(*self._left, strict=True)]
            at, before, values, spread, path = parts
            predicted = self._predicted(before, at)
            known = np.isfinite(values)
            ends = exact(Rows(np.where(known, values, values[known][:1]), known))
            quantiles = normal([weighted(predicted, each) for each in ends], spread)
            self.quantiles[:, at] = np.where(known, quantiles, np.nan).T
            if path is not None:
                given = normal([each[np.arange(len(path)), path] for each in ends], spread)
                self.given[:, at] = np.where(known, given, np.nan).T
        given = self.given if len(self.given) else np.broadcast_to(np.nan, self.quantiles.shape)
        return Found(self.quantiles, given, self.lowest)


def normal(ends: list[np.ndarray], spread: np.ndarray | None) -> np.ndarray:
    """Normal quantiles of probabilities; discrete observations are spread at random over the steps of these."""
    below = ends[0] if spread is None else ends[0] + (ends[-1] - ends[0]) * spread
    return np.asarray(ndtri(np.clip(below, EDGE, 1 - EDGE)))
