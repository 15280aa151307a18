"""What one pass over the data says about better parameters: the E step of expectation maximisation.

With gamma and xi computed at the current parameters, EM climbs

    Q(theta) = sum_ij n_ij log A[i, j] + sum_t sum_k gamma_t(k) log p(y_t | k) + (first states) + log prior

An exponential family needs only `sum_t gamma_t(k) s(y_t)`, from which Q is known everywhere. For any other emission,
and for rows that are missing in part, the pass yields the first and second derivatives of Q where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.read import lowering_for
from longhmm.backends.stream import Progress, totals
from longhmm.data.executor import Task
from longhmm.data.rows import Rows
from longhmm.data.sequences import Sequences
from longhmm.model.conjugate import Sums
from longhmm.model.hmm import HMM
from longhmm.model.newton import Coordinates
from longhmm.target.target import Target


class Slopes(NamedTuple):
    """Derivatives of Q without prior in the emission's coordinates, at the parameters of the pass.

    Attributes:
        gradient: `(P,)`.
        hessian: `(P, P)`.
        squares: `(P,)`, `sum_t gamma_t(k)` times the squared derivative of `log p(y_t | k)`: about minus the diagonal
            of the Hessian where a density is smooth, and a curvature also where it has corners.
    """

    gradient: np.ndarray
    hessian: np.ndarray
    squares: np.ndarray


class Expected(NamedTuple):
    """Everything the M step needs, at the parameters of the pass.

    Attributes:
        log_likelihood: `log p(y)`.
        first: `(K,)`, expected number of sequences that begin in each state.
        transitions: `(K, K)`, expected number of transitions from i to j.
        emission: `Sums` or `Slopes`.
    """

    log_likelihood: float
    first: np.ndarray
    transitions: np.ndarray
    emission: Sums | Slopes


def expect(data: Target, params: Mapping[str, Any], *, by_sums: bool, progress: Progress | None = None) -> Expected:
    """One exact pass over the data; `by_sums` asks for sufficient statistics, which only some emissions have."""
    model, complete = data.model, data.model.validate(params)
    lowering = lowering_for(model, data.sequences) if by_sums else None
    collect = None if lowering is not None else collect_sums if by_sums else collect_slopes
    found = totals(model, complete, data.sequences, collect, progress=progress)
    emission = found.collected
    if by_sums:
        centre = np.asarray(model.emission.centre(complete))
        if lowering is None:
            emission = emission._replace(centre=centre)
        else:
            assert found.sums is not None
            emission = Sums(*lowering.expected_statistics(complete, found.sums, centre), centre)
    return Expected(found.log_likelihood, found.first, found.transitions, emission)


def sums_suffice(data: Target) -> bool:
    """Whether sufficient statistics serve: an exponential family, and no row that is observed in part only."""
    if not data.model.emission.is_exponential_family:
        return False
    may_be_partial = data.sequences.dim > 1 and (data.sequences.has_mask or data.sequences.dtype.kind == "f")
    return not may_be_partial or not _any_partly_observed(data)


def collect_sums(model: HMM, params: Mapping[str, jax.Array], rows: Rows, weights: jax.Array) -> Sums:
    emission = model.emission
    observed = jnp.asarray(rows.observed)
    whole = jnp.all(observed, axis=1)
    values = jnp.where(whole[:, None], jnp.asarray(rows.values).astype(weights.dtype), emission.fill(weights.dtype))
    values = values - emission.centre(params)
    weights = jnp.where(whole[:, None], weights, 0.0)
    statistics = emission.sufficient_statistics(values if emission.vector_valued else values[:, 0])
    assert statistics is not None
    return Sums(weights.T @ statistics, jnp.sum(weights, axis=0), jnp.zeros(emission.dim))  # type: ignore[arg-type]


def collect_slopes(model: HMM, params: Mapping[str, jax.Array], rows: Rows, weights: jax.Array) -> Slopes:
    coordinates = Coordinates(model.emission.parameters(model.n_states))
    vector = coordinates.flatten(params)
    owners = model.emission.state_levels(model.n_states)

    def logs(vector: jax.Array) -> jax.Array:
        return model.emission.log_likelihoods(coordinates.params(vector), rows)

    def weighted(vector: jax.Array) -> jax.Array:
        # A state that cannot have produced a row has weight 0 and log density minus infinity.
        return jnp.sum(weights * jnp.where(weights > 0, logs(vector), 0.0))

    slopes = coordinates.derivatives(weighted, vector)
    squares = coordinates.squared_slopes(logs, vector, weights, owners)
    return Slopes(slopes.gradient, slopes.hessian, squares)  # type: ignore[arg-type]


def _any_partly_observed(data: Target, rows: int = 1 << 18) -> bool:
    length = data.sequences.length
    starts = range(0, length, rows)
    spans = ((start, min(start + rows, length)) for start in starts)
    tasks = (Task(span, *span, gives_rows=False) for span in spans)
    return any(data.sequences.executor.run(_partly_observed, data.model, data.sequences, tasks))


def _partly_observed(model: HMM, sequences: Sequences) -> Callable[[tuple[int, int]], bool]:
    def look(rows: tuple[int, int]) -> bool:
        observed = sequences.rows(*rows).observed
        return bool(np.any(observed.any(axis=1) != observed.all(axis=1)))

    return look
