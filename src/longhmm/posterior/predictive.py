"""What the past says about an observation: streamed predictive densities, and the law of the last state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.block import Own
from longhmm.backends.stream import stream
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.errors import ModelError
from longhmm.inference.recursions import Steps, filtered
from longhmm.model.hmm import HMM

TAILS = (1 << 10, 1 << 14)  # observations before the end that are tried before the whole sequence is
FORGOTTEN = 1e-12  # total variation between laws whose starts no longer matter


class Predicted(NamedTuple):
    """Predictions of the rows `[start, stop)`, each from the observations up to `steps` times before it.

    Attributes:
        start, stop: rows of the data.
        law: `(n, K)`, `P(x_t = k | y_0 .. y_{t-steps})`.
        log_density: `(n,)`, `log p(y_t | y_0 .. y_{t-steps})`; 0 for a missing observation.
        valid: `(n,)`, False where the sequence has no observation that far back.
        seen: `(n,)`, whether anything was observed at that time.
    """

    start: int
    stop: int
    law: np.ndarray
    log_density: np.ndarray
    valid: np.ndarray
    seen: np.ndarray


def predictions(model: HMM, params: Mapping[str, Any], sequences: Sequences, steps: int = 1) -> Iterator[Predicted]:
    """Predict every observation from those at least `steps` earlier, in one streamed pass, exactly.

    With `steps=1` the first observation of a sequence is predicted from `initial`, so that the log densities add up
    to the log likelihood.
    """
    if steps < 1:
        raise ModelError(f"steps must be at least 1, got {steps!r}.")
    complete = model.validate(params)
    jump = np.linalg.matrix_power(complete["transition"], steps)
    recent = np.zeros((steps, model.n_states))  # filtered laws of the rows just before the block
    for own in stream(model, complete, sequences, _collect_densities, forward_only=True):
        alpha, (logs, seen) = own.probabilities, own.collected
        rows = np.concatenate([recent, alpha])
        law = rows[: len(alpha)] @ jump
        recent = rows[len(rows) - steps :].copy()
        position = np.arange(own.start, own.stop)
        first = sequences.offsets[np.searchsorted(sequences.offsets, position, side="right") - 1]
        valid = position - steps >= first
        if steps == 1:
            law[~valid] = complete["initial"]
            valid = np.ones_like(valid)
        yield Predicted(own.start, own.stop, law, _log_densities(law, logs), valid, seen)


def stretch_log_likelihoods(
    model: HMM, params: Mapping[str, Any], sequences: Sequences, edges: np.ndarray
) -> tuple[np.ndarray, int]:
    """Log likelihood of each stretch `[edges[b], edges[b+1])` given all before it, and the rows observed at all."""
    complete = model.validate(params)
    totals, seen = np.zeros(len(edges) - 1), 0
    reduce = partial(_stretch_sums, complete["initial"], complete["transition"], edges)
    found = stream(model, complete, sequences, _collect_densities, reduce=reduce, forward_only=True)
    for first, sums, observed in found:
        totals[first : first + len(sums)] += sums
        seen += observed
    return totals, seen


def _stretch_sums(
    initial: np.ndarray, transition: np.ndarray, edges: np.ndarray, own: Own
) -> tuple[int, np.ndarray, int]:
    """Of one block: the first stretch in it, what it adds to that one and to those that follow, and rows observed."""
    alpha, (logs, seen) = own.probabilities, own.collected
    assert alpha is not None
    before = np.exp(own.before - own.before.max())
    law = np.concatenate([(before / before.sum())[None], alpha[:-1]]) @ transition
    law[own.openings] = initial
    stretch = np.searchsorted(edges, np.arange(own.start, own.stop), side="right") - 1
    return int(stretch[0]), np.bincount(stretch - stretch[0], _log_densities(law, logs)), int(seen.sum())


def _log_densities(law: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """`log sum_k law[t, k] p(y_t | k)` of every row."""
    with np.errstate(divide="ignore", invalid="ignore"):
        joint = np.log(law) + logs
        peak = joint.max(axis=1, keepdims=True)
        peak = np.where(np.isfinite(peak), peak, 0.0)
        return np.asarray(np.log(np.exp(joint - peak).sum(axis=1)) + peak[:, 0])


def _collect_densities(
    model: HMM, params: Mapping[str, jax.Array], rows: Rows, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return model.log_likelihoods(params, rows), jnp.any(jnp.asarray(rows.observed), axis=1)


def next_law(model: HMM, params: Mapping[str, Any], before: Sequences, following: Sequences) -> np.ndarray:
    """`(K,)`, of the state at the first row of `following`, which goes on where `before` ends."""
    moves, rows = model.transitions, following.rows(0, 1)
    covariates = np.zeros((1, 0)) if rows.covariates is None else rows.covariates
    with jax.enable_x64(True):
        matrix = np.asarray(moves.matrices(jnp.asarray(params[moves.parameter]), jnp.asarray(covariates))[0])
    return np.asarray(final_law(model, params, before) @ matrix)


def final_law(model: HMM, params: Mapping[str, Any], sequences: Sequences, sequence: int = -1) -> np.ndarray:
    """`(K,)`, `P(x_{T-1} = k | y_0 .. y_{T-1})` at the end of one sequence.

    Only the end is read where that is enough: if the filter gives the same law from every single state in which it
    could have started, then the observations before cannot matter.
    """
    model.check_dim(sequences)
    complete = model.validate(params)
    first, last = int(sequences.offsets[:-1][sequence]), int(sequences.offsets[1:][sequence])
    plain = not (model.transitions.varies or model.emission.couples)
    for tail in TAILS if plain else ():
        start = max(first, last - tail)
        rows = sequences.rows(start, last, model.lags)
        model.check_rows(sequences, rows.values, rows.observed, start)
        with jax.enable_x64(True):
            arrays = {name: jnp.asarray(value) for name, value in complete.items()}
            laws = np.asarray(_last_laws(model, start == first, arrays, rows))
        laws = laws[np.isfinite(laws).all(axis=1)]  # a start from which the data are impossible did not happen
        if len(laws) and 0.5 * np.abs(laws - laws[:1]).sum(axis=1).max() <= FORGOTTEN:
            return np.asarray(laws[0])
        if start == first:
            break
    # A chain that does not forget, or data that cannot be: the whole pass is exact, or says what is wrong.
    law = np.full(model.n_states, np.nan)
    for own in stream(model, complete, sequences, forward_only=True):
        if own.start < last <= own.stop:
            law = own.probabilities[last - 1 - own.start]
    return law


@partial(jax.jit, static_argnames=("at_start",))
def _last_laws(model: HMM, at_start: bool, params: Mapping[str, jax.Array], rows: Rows) -> jax.Array:
    """`(K, K)`, the filtered law at the last row from each single state before the first; NaN where impossible."""
    n_states = model.n_states
    logs = model.log_likelihoods(params, rows)
    lanes = jnp.broadcast_to(logs[:, :, None], (*logs.shape, n_states))
    before = jnp.where(jnp.eye(n_states, dtype=bool), 0.0, -jnp.inf)
    starts = jnp.full(n_states, at_start)
    found = filtered(before, Steps(params["transition"], lanes, params["initial"], starts))
    return jnp.where(found.impossible_at[:, None] >= 0, jnp.nan, jnp.exp(found.log_forward[-1]).T)
