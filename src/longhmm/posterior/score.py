"""How well the posterior predicts data it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError, ImpossibleObservationError, ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.predictive import next_law, predictions, stretch_log_likelihoods
from longhmm.run.cluster_passes import on_cluster

if TYPE_CHECKING:
    from longhmm.posterior.posterior import Posterior

BLOCKS = 100


@dataclass(frozen=True)
class Score:
    """Held-out log predictive density, `log p(y_test | y_train)`.

    Attributes:
        log_density: `log mean_s p(y_test | theta_s)` over the draws.
        per_observation: the same divided by the number of rows in which something was observed.
        error: its Monte Carlo standard error, from the spread of the draws, taken as independent.
        blocks: `(B,)` what each stretch of the data adds, given the stretches before; they sum to `log_density`.
        by_draw: `(draws,)` the log likelihood of each draw.
        n_observations: rows in which something was observed.
    """

    log_density: float
    per_observation: float
    error: float
    blocks: np.ndarray
    by_draw: np.ndarray
    n_observations: int

    def __str__(self) -> str:
        return (
            f"log predictive density {self.log_density:,.2f} +- {self.error:.2g} (Monte Carlo), "
            f"{self.per_observation:.4f} per observation, {self.n_observations:,} observations"
        )


def score(
    posterior: Posterior, data: Any, *, draws: int = 100, after: Any = None, blocks: int = BLOCKS, client: Any = None
) -> Score:
    """See `Posterior.score`."""
    sequences = on_cluster(data, client)
    before = None if after is None else on_cluster(after, client)
    if before is not None and sequences.n_sequences > 1:
        raise DataError(
            f"after= goes with one sequence, but {sequences.name} has {sequences.n_sequences}; leave it out."
        )
    edges = np.linspace(0, sequences.length, min(blocks, sequences.length) + 1).astype(np.int64)
    rows, counts = [], []
    for params in posterior.iterate(draws):
        if before is not None:
            params["initial"] = next_law(posterior.model, params, before, sequences)
        found, seen = _by_stretch(posterior.model, params, sequences, edges)
        rows.append(found)
        counts.append(seen)
    seen = min(counts)
    by_block = np.stack(rows)
    by_draw = by_block.sum(axis=1)
    joint = log_mean_exp(np.cumsum(by_block, axis=1))
    total = float(joint[-1])
    return Score(
        total,
        total / max(seen, 1),
        log_mean_error(by_draw),
        np.diff(joint, prepend=0.0) if np.isfinite(total) else np.full(len(joint), -np.inf),
        by_draw,
        seen,
    )


def _by_stretch(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, edges: np.ndarray
) -> tuple[np.ndarray, int]:
    """See `stretch_log_likelihoods`; minus infinity where an observation is impossible."""
    try:
        return stretch_log_likelihoods(model, params, sequences, edges)
    except ImpossibleObservationError:
        return np.full(len(edges) - 1, -np.inf), sequences.length


def log_mean_exp(logs: np.ndarray) -> np.ndarray:
    """`log mean exp` over the first axis."""
    peak = logs.max(axis=0)
    safe = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(logs - safe).mean(axis=0)) + safe)


def log_mean_error(logs: np.ndarray) -> float:
    """Standard error of `log mean exp` over independent draws (delta method)."""
    if len(logs) < 2 or not np.isfinite(logs.max()):
        return float("nan")
    weights = np.exp(logs - logs.max())
    return float(weights.std(ddof=1) / (weights.mean() * np.sqrt(len(weights))))


@dataclass(frozen=True)
class PredictiveScore:
    """Mean over times of `log p(y_{t+steps} | y_0 .. y_t)`.

    Attributes:
        mean: the score, per observation.
        error: its standard error over the data, from the spread of means of up to 100 stretches.
        n_observations: how many predictions were made.
    """

    mean: float
    error: float
    n_observations: int


def predictive_log_prob(
    model: HMM, params: Mapping[str, Any] | Sequence[Mapping[str, Any]], data: Any, *, steps: int = 10
) -> PredictiveScore:
    """Mean over t of `log p(y_{t+steps} | y_0 .. y_t)`; of several parameters, the densities are averaged at each t.

    All parameters run side by side over the data, so that memory holds one block of each.
    """
    several = [params] if isinstance(params, Mapping) else list(params)
    if not several:
        raise ModelError("params must hold at least one set of parameters, got none.")
    sequences = open_data(data)
    edges = np.linspace(0, sequences.length, min(BLOCKS, sequences.length) + 1).astype(np.int64)
    totals, counts = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for parts in zip(*(predictions(model, each, sequences, steps) for each in several), strict=True):
        first = parts[0]
        used = first.valid & first.seen
        block = np.searchsorted(edges, np.arange(first.start, first.stop)[used], side="right") - 1
        density = log_mean_exp(np.stack([part.log_density for part in parts]))[used]
        totals += np.bincount(block, density, minlength=len(totals))
        counts += np.bincount(block, minlength=len(totals))
    n = int(counts.sum())
    if n == 0:
        raise DataError(f"{sequences.name} has no observation {steps} steps after another; use fewer steps.")
    mean = float(totals.sum() / n)
    gaps = (totals - mean * counts)[counts > 0]
    error = float(np.sqrt(np.sum(gaps**2) * len(gaps) / max(len(gaps) - 1, 1)) / n)
    return PredictiveScore(mean, error, n)
