"""Correlations between the parameters of a posterior, from draws: how large, and how well they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from longhmm.run.chains import bulk_effective_size
from longhmm_reproduction.chains import Params

POSSIBLE = 0.05  # exact posterior mean of a transition whose correlations are looked at
STRONGEST = 200  # pairs whose effective sample sizes are computed


class Columns(NamedTuple):
    """Parameters side by side, `(chain, draw, P)`, and the pairs that are compared, each `(pairs,)`."""

    values: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def deviations(self) -> np.ndarray:
        """Posterior standard deviations, `(P,)`: of all draws of all chains."""
        return np.asarray(self.values.reshape(-1, self.values.shape[-1]).std(axis=0))


class Squares(NamedTuple):
    """Correlations of all pairs, and the products of those of two halves of the draws."""

    correlations: np.ndarray
    products: np.ndarray


def columns_of(posteriors: Mapping[str, Params]) -> dict[str, Columns]:
    """Means, covariances and transitions of several posteriors; the first one says which transitions are possible.

    Pairs of entries of one row of the transition matrix are left out: rows sum to one in every posterior.
    """
    exact = next(iter(posteriors.values()))["transition"]
    possible = np.flatnonzero(exact.mean(axis=(0, 1)) > POSSIBLE)
    return {name: _columns(draws, possible) for name, draws in posteriors.items()}


def _columns(draws: Params, possible: np.ndarray) -> Columns:
    shape = draws["transition"].shape[:2]
    transition = draws["transition"].reshape(*shape, -1)[..., possible]
    upper = draws["covariance"][..., *np.triu_indices(draws["covariance"].shape[-1])]
    values = np.concatenate([draws["mean"].reshape(*shape, -1), upper.reshape(*shape, -1), transition], axis=2)
    row = np.concatenate([np.full(values.shape[2] - len(possible), -1), possible // draws["transition"].shape[-1]])
    first, second = np.triu_indices(len(row), 1)
    kept = (row[first] != row[second]) | (row[first] < 0)
    return Columns(values, first[kept], second[kept])


def squared_correlations(columns: Columns) -> Squares:
    """Correlations of finitely many draws are never zero, and so their squares are too large on average. Those of two
    independent halves, multiplied pair by pair, have the squared correlation as their mean: half of the chains each,
    or half of the draws where there is one chain.
    """
    values = columns.values if len(columns.values) > 1 else np.stack(np.array_split(columns.values[0], 2))
    halves = np.array_split(values, 2)
    one, two = (_correlations(half, columns) for half in halves)
    return Squares(_correlations(columns.values, columns), one * two)


def _correlations(values: np.ndarray, columns: Columns) -> np.ndarray:
    flat = values.reshape(-1, values.shape[-1])
    return np.asarray(np.corrcoef(flat.T)[columns.first, columns.second])


def effective_sizes(columns: Columns, squares: Squares) -> np.ndarray:
    """Effective sample sizes of the strongest correlations: of the products of standardised parameters."""
    strongest = np.argsort(-np.abs(squares.correlations))[:STRONGEST]
    flat = columns.values.reshape(-1, columns.values.shape[-1])
    standard = (columns.values - flat.mean(axis=0)) / flat.std(axis=0)
    return bulk_effective_size(standard[..., columns.first[strongest]] * standard[..., columns.second[strongest]])


def mixing(values: np.ndarray) -> np.ndarray:
    """How much larger the standard deviation of all draws is than that within halves of chains, for every parameter:
    about 1 where chains from different starts agree (Gelman and Rubin)."""
    half = values.shape[1] // 2
    split = np.concatenate([values[:, :half], values[:, -half:]])
    within = split.var(axis=1, ddof=1).mean(axis=0)
    between = split.mean(axis=1).var(axis=0, ddof=1)
    return np.asarray(np.sqrt((half - 1) / half + between / within))
