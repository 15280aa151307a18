"""What the past says of the rows that follow it, and how well: predictions, forecasts, and scores of held-out data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.block import Collector
from longhmm.backends.stream import Stretches, stream
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError, ImpossibleObservationError, ModelError, check_whole
from longhmm.inference.recursions import Steps, filtered
from longhmm.inference.scaling import log_sum_exp, safe_log
from longhmm.model.formula import transitions_into
from longhmm.model.hmm import HMM
from longhmm.model.memory import unfold
from longhmm.model.row_by_row import Ahead, checked_covariates, extend_paths, states_ahead
from longhmm.posterior.draws import Draws, in_float64
from longhmm.run.cluster import on_cluster

TAILS = (1 << 10, 1 << 14)  # observations before the end that are tried before the whole sequence is
BLOCKS = 100
FORGOTTEN = 1e-12  # total variation between distributions whose starts no longer matter


class Predicted(NamedTuple):
    """Predictions of the rows `[start, stop)`, each from the observations up to `steps` times before it."""

    start: int
    stop: int
    states: np.ndarray  # (n, K), P(x_t = k | y_0 .. y_{t-steps})
    valid: np.ndarray  # (n,), False where the sequence has no observation that far back
    collected: Any  # what the collector returned of these rows
    before: np.ndarray  # (n, K), P(x_{t-steps} = k | y_0 .. y_{t-steps}); `initial` where nothing lies so far back


def predictions(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, steps: int = 1, collect: Collector | None = None
) -> Iterator[Predicted]:
    """Predict the state at every row from observations at least `steps` earlier, in one streamed pass, exactly; with
    `steps=1` the first state of a sequence has, or (where emissions couple states) comes from, `initial`."""
    check_whole("steps", steps, 1)
    _, model, complete = unfold(model, model.validate(params))
    recent = np.zeros((steps, model.n_states))  # filtering distributions of the rows just before the block
    for own in stream(model, complete, sequences, collect, forward_only=True):
        rows = np.concatenate([recent, own.probabilities])
        recent, before = rows[len(rows) - steps :].copy(), rows[: own.stop - own.start]
        position = np.arange(own.start, own.stop)
        first = sequences.offsets[np.searchsorted(sequences.offsets, position, side="right") - 1]
        valid = position - steps >= first
        before[~valid] = complete["initial"]
        states = states_ahead(model, complete, sequences, before, own.start, steps)
        if steps == 1 and not model.emission.couples:
            states[~valid] = complete["initial"]
        yield Predicted(own.start, own.stop, states, valid | (steps == 1), own.collected, before)


def last_state(model: HMM, params: Mapping[str, Any], sequences: Sequences, sequence: int = -1) -> np.ndarray:
    """`(K,)`, `P(x_{T-1} = k | y_0 .. y_{T-1})` at the end of one sequence; only the end is read where the filter gives
    the same distribution from every state in which it could have started."""
    model.check_dim(sequences)
    _, model, complete = unfold(model, model.validate(params))
    first, last = int(sequences.offsets[:-1][sequence]), int(sequences.offsets[1:][sequence])
    for tail in TAILS:
        start = max(first, last - tail)
        rows = sequences.rows(start, last, model.lags)
        model.check_rows(sequences, rows.values, rows.observed, start)
        ends = in_float64(_last_states, model, start == first, complete, rows)
        ends = ends[np.isfinite(ends).all(axis=1)]  # a start from which the data are impossible did not happen
        if len(ends) and 0.5 * np.abs(ends - ends[:1]).sum(axis=1).max() <= FORGOTTEN:
            return np.asarray(ends[0])
        if start == first:
            break
    # A chain that does not forget, or data that cannot be: the whole pass is exact, or says what is wrong.
    found = np.full(model.n_states, np.nan)
    for own in stream(model, complete, sequences, forward_only=True):
        if own.start < last <= own.stop:
            found = own.probabilities[last - 1 - own.start]
    return found


@partial(jax.jit, static_argnames=("at_start",))
def _last_states(model: HMM, at_start: bool, params: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    """`(K, K)`, filtering distributions of the last row from each single state before the first; NaN if impossible."""
    n_states, moves = model.n_states, model.transitions
    logs, matrices = model.log_likelihoods(params, rows), params["transition"]
    if moves.varies:
        matrices = moves.matrices(params[moves.parameter], jnp.asarray(rows.covariates))[..., None]
        matrices = jnp.broadcast_to(matrices, (*matrices.shape[:3], n_states))
    before = jnp.where(jnp.eye(n_states, dtype=bool), 0.0, -jnp.inf)
    lanes, starts = jnp.broadcast_to(logs[..., None], (*logs.shape, n_states)), jnp.full(n_states, at_start)
    found = filtered(before, Steps(matrices, lanes, params["initial"], starts))
    return jnp.where(found.impossible_at[:, None] >= 0, jnp.nan, jnp.exp(found.log_forward[-1]).T)


@dataclass(frozen=True)
class Forecast:
    """Predictions of the `steps` observations after the last one; row h is h + 1 steps ahead."""

    state_probabilities: np.ndarray  # (steps, K), P(x = k | y), averaged over draws of the parameters
    mean: np.ndarray  # (steps, D), of the observation, over parameters, states and noise
    sd: np.ndarray
    quantiles: dict[float, np.ndarray]  # {level: (steps, D)}
    samples: np.ndarray  # (paths, steps, D), sample paths of observations, from which the three above are computed


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


class Predicting(Draws):
    """Draws that say what comes after the end of the data, and are judged by data they have not seen."""

    def forecast(
        self,
        data: Any,
        steps: int,
        *,
        draws: int = 200,
        paths: int = 20,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        sequence: int = -1,
        seed: int = 0,
        covariates: Any = None,
    ) -> Forecast:
        """Predict states and observations after the end of one sequence.

        State probabilities are exact for each draw of the parameters; observations are sampled.

        Args:
            data: the observations so far.
            steps: how many steps ahead.
            draws: draws of the parameters.
            paths: sampled continuations of each draw.
            quantiles: of the sampled observations, which to return.
            sequence: which sequence goes on, the last by default.
            seed: of the sampled observations.
            covariates: `(steps, C)`, of the steps ahead, for models that depend on them.
        """
        check_whole("steps", steps, 1)
        check_whole("paths", paths, 1)
        model, sequences = self.model, self.model.opened(data)
        future = checked_covariates(model, covariates, steps, sequences.origin + int(sequences.offsets[1:][sequence]))
        lags = np.broadcast_to(last_rows(model, sequences, sequence), (paths, model.lags, model.dim))
        key, probabilities, samples = jax.random.key(seed), [], []
        for index, natural in enumerate(self.iterate(draws)):
            memory, model, params = unfold(self.model, natural)
            state, ahead = last_state(model, params, sequences, sequence), []
            for matrix in transitions_into(model, params, future):
                ahead.append(state := state @ matrix)
            probabilities.append(ahead)
            first, further = jax.random.split(jax.random.fold_in(key, index))
            states = in_float64(partial(jax.random.categorical, shape=(paths,)), first, np.log(ahead[0]))
            samples.append(in_float64(extend_paths, model, params, Ahead(states, lags, np.True_), future, further)[2])
        observed = np.concatenate(samples)
        levels = {float(level): np.quantile(observed, level, axis=0) for level in quantiles}
        return Forecast(
            memory.fold(np.mean(probabilities, axis=0)), observed.mean(axis=0), observed.std(axis=0), levels, observed
        )

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
        model, before = self.model, None if after is None else on_cluster(self.model.opened(after), client)
        sequences = on_cluster(model.opened(data, 0 if before is None else before.origin + before.length), client)
        if before is not None:
            if sequences.n_sequences > 1:
                raise DataError(f"after= goes with one sequence, but {sequences.name} has {sequences.n_sequences}.")
            sequences, first = sequences.following(last_rows(model, before)), sequences.rows(0, 1).covariates
        stretches, by_block = Stretches(unfold(model, next(self.iterate(1)))[1], sequences, blocks), []
        for natural in self.iterate(draws):
            _, inner, params = unfold(model, natural)
            if before is not None:
                last, matrix = last_state(inner, params, before), transitions_into(inner, params, first)[0]
                params["initial"] = last if model.emission.couples else last @ matrix
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


def last_rows(model: HMM, sequences: Sequences, sequence: int = -1) -> np.ndarray:
    """`(p, D)`, the rows that the first new one looks back at, the nearest first; NaN where there are none."""
    found = np.full((model.lags, model.dim), np.nan)
    begin, end = int(sequences.offsets[:-1][sequence]), int(sequences.offsets[1:][sequence])
    if count := min(model.lags, end - begin):
        block = sequences.rows(end - count, end)
        found[:count] = np.where(block.observed, block.values, np.nan)[::-1]
    return found


def log_mean_exp(logs: np.ndarray) -> np.ndarray:
    """`log mean exp` over the first axis; written out, since SciPy's takes several times as long."""
    peak = np.nan_to_num(logs.max(axis=0), neginf=0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(logs - peak).mean(axis=0)) + peak)


def predictive_log_prob(
    model: HMM, params: Mapping[str, Any] | Sequence[Mapping[str, Any]], data: Any, *, steps: int = 10
) -> PredictiveScore:
    """Mean over t of `log p(y_{t+steps} | y_0 .. y_t)`; of several parameters, the densities are averaged at each t."""
    several = [params] if isinstance(params, Mapping) else list(params)
    if not several:
        raise ModelError("params must hold at least one set of parameters, got none.")
    if (model.emission.couples or model.lags) and steps > 1:
        said = f"got {steps!r} for {model!r}"
        raise ModelError(f"steps must be 1 where observations depend on those before them, or on two states, {said}.")
    sequences = model.opened(data)
    edges = np.linspace(0, sequences.length, min(BLOCKS, sequences.length) + 1).astype(np.int64)
    totals, counts = np.zeros((2, len(edges) - 1))
    # All parameters run side by side over the data, so that memory holds one block of each.
    for parts in zip(*(predictions(model, each, sequences, steps, _densities) for each in several), strict=True):
        first = parts[0]
        used = first.valid & first.collected[1]
        block = np.searchsorted(edges, np.arange(first.start, first.stop)[used], side="right") - 1
        with np.errstate(divide="ignore"):
            chances = [part.before if model.emission.couples else part.states for part in parts]
            joint = [(np.log(own) + part.collected[0])[used].T for own, part in zip(chances, parts, strict=True)]
        # The mean over parameters and states, times the number of states: their sum.
        density = log_mean_exp(np.concatenate(joint)) + np.log(len(joint[0]))
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
    """`(n, K)`, given the state of a row, or (where emissions couple states) of the row before."""
    _, matrices, logs = model.potentials(params, rows)
    densities = log_sum_exp(safe_log(matrices) + logs, axis=-1) if model.emission.couples else logs
    return densities, jnp.any(jnp.asarray(rows.observed), axis=1)
