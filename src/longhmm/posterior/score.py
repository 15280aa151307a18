"""How well a posterior predicts data it has not seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.stretches import Stretches
from longhmm.data.rows import Rows
from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ImpossibleObservationError, ModelError
from longhmm.model.hmm import HMM
from longhmm.posterior.draws import Draws
from longhmm.posterior.predict import last_rows, last_state, predictions, transitions_into
from longhmm.run.cluster import on_cluster

BLOCKS = 100


@dataclass(frozen=True)
class Score:
    """Held-out log predictive density, `log p(y_test | y_train)`."""

    log_density: float  # log mean_s p(y_test | theta_s) over the draws
    per_observation: float  # the same divided by the number of rows in which something was observed
    error: float  # its Monte Carlo standard error, from the spread of the draws, taken as independent
    blocks: np.ndarray  # (B,) what each stretch of the data adds, given those before; they sum to log_density
    by_draw: np.ndarray  # (draws,) the log likelihood of each draw
    n_observations: int  # rows in which something was observed

    def __str__(self) -> str:
        return (
            f"log predictive density {self.log_density:,.2f} +- {self.error:.2g} (Monte Carlo), "
            f"{self.per_observation:.4f} per observation, {self.n_observations:,} observations"
        )


@dataclass(frozen=True)
class PredictiveScore:
    """Mean over times of `log p(y_{t+steps} | y_0 .. y_t)`."""

    mean: float  # the score, per observation
    error: float  # its standard error over the data, from the spread of means of up to 100 stretches
    n_observations: int  # how many predictions were made


class Scoring(Draws):
    """Draws that are judged by data they have not seen."""

    def score(self, data: Any, *, draws: int = 100, after: Any = None, blocks: int = 100, client: Any = None) -> Score:
        """Log predictive density of held-out data: the logarithm of the likelihood averaged over draws.

        Args:
            data: held-out observations.
            draws: how many draws to average over.
            after: data that `data` follow without a gap, such as the training data; the first state then has the
                distribution that they imply. Without it, `data` begin afresh from the initial distribution.
            blocks: stretches of equal length into which the score is split.
            client: a `dask.distributed.Client`, whose workers then pass over the data.
        """
        model, sequences = self.model, on_cluster(data, client)
        before = None if after is None else on_cluster(after, client)
        if before is not None:
            if sequences.n_sequences > 1:
                raise DataError(f"after= goes with one sequence, but {sequences.name} has {sequences.n_sequences}.")
            if model.emission.couples:
                raise ModelError(f"after= must be left out where observations depend on two states, as of {model!r}.")
            sequences = sequences.following(last_rows(model, before))
        stretches, by_block = Stretches(model, sequences, blocks), []
        for params in self.iterate(draws):
            if before is not None:
                matrix = transitions_into(model, params, sequences.rows(0, 1).covariates)[0]
                params["initial"] = last_state(model, params, before) @ matrix
            try:
                by_block.append(stretches.log_likelihoods(params))
            except ImpossibleObservationError:
                by_block.append(np.full(len(stretches.edges) - 1, -np.inf))
        by_draw, joint = np.sum(by_block, axis=1), log_mean_exp(np.cumsum(by_block, axis=1))
        total, error = float(joint[-1]), float("nan")
        steps = np.diff(joint, prepend=0.0) if np.isfinite(total) else np.full(len(joint), -np.inf)
        if len(by_draw) > 1 and np.isfinite(by_draw.max()):  # of independent draws, by the delta method
            weights = np.exp(by_draw - by_draw.max())
            error = float(weights.std(ddof=1) / (weights.mean() * np.sqrt(len(weights))))
        return Score(total, total / max(stretches.seen, 1), error, steps, by_draw, stretches.seen)

    def predictive_log_prob(self, data: Any, *, steps: int = 10, draws: int = 10) -> PredictiveScore:
        """Mean over t of `log p(y_{t+steps} | y_0 .. y_t)`, densities averaged over `draws` draws at each t."""
        return predictive_log_prob(self.model, list(self.iterate(draws)), data, steps=steps)


def log_mean_exp(logs: np.ndarray) -> np.ndarray:
    """`log mean exp` over the first axis; written out, since SciPy's takes several times as long."""
    peak = np.nan_to_num(logs.max(axis=0), neginf=0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(logs - peak).mean(axis=0)) + peak)


def predictive_log_prob(
    model: HMM, params: Mapping[str, Any] | Sequence[Mapping[str, Any]], data: Any, *, steps: int = 10
) -> PredictiveScore:
    """Mean over t of `log p(y_{t+steps} | y_0 .. y_t)`; of several parameters, the densities are averaged at each t.

    All parameters run side by side over the data, so that memory holds one block of each.
    """
    several = [params] if isinstance(params, Mapping) else list(params)
    if not several:
        raise ModelError("params must hold at least one set of parameters, got none.")
    if model.emission.couples or (model.lags and steps > 1):
        raise ModelError(
            f"steps must be 1 where observations depend on those before them, and on one state each, got {steps!r} "
            f"for {model!r}."
        )
    sequences = open_data(data)
    edges = np.linspace(0, sequences.length, min(BLOCKS, sequences.length) + 1).astype(np.int64)
    totals, counts = np.zeros((2, len(edges) - 1))
    for parts in zip(*(predictions(model, each, sequences, steps, _densities) for each in several), strict=True):
        first = parts[0]
        used = first.valid & first.collected[1]
        block = np.searchsorted(edges, np.arange(first.start, first.stop)[used], side="right") - 1
        with np.errstate(divide="ignore"):
            joint = [(np.log(part.states) + part.collected[0])[used].T for part in parts]
        # The mean over parameters and states, times the number of states: their sum.
        density = log_mean_exp(np.concatenate(joint)) + np.log(model.n_states)
        totals += np.bincount(block, density, minlength=len(totals))
        counts += np.bincount(block, minlength=len(totals))
    n = int(counts.sum())
    if n == 0:
        raise DataError(f"{sequences.name} has no observation {steps} steps after another; use fewer steps.")
    mean = float(totals.sum() / n)
    gaps = (totals - mean * counts)[counts > 0]
    error = float(np.sqrt(np.sum(gaps**2) * len(gaps) / max(len(gaps) - 1, 1)) / n)
    return PredictiveScore(mean, error, n)


def _densities(model: HMM, params: Mapping[str, Any], rows: Rows, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log likelihoods of every row, and whether anything was observed in it."""
    return model.log_likelihoods(params, rows), jnp.any(jnp.asarray(rows.observed), axis=1)
