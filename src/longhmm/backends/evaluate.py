"""From a model, its parameters and rows to marginals and gradients: the one place where potentials meet a backend.

By Fisher's identity (F8) the gradient of the log likelihood is the pull-back of the marginals through the potentials.
Where an emission has a lowering, the backend sums sufficient statistics and the lowering pulls them back; otherwise the
log likelihoods are evaluated once, and automatic differentiation does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longhmm.backends import cpp, reference
from longhmm.backends.protocol import PAIR, PRECOMPUTED, Backend, Boundary, ChunkStatistics, Lowered, Varying, Wanted
from longhmm.data.layout import Layout
from longhmm.data.rows import Rows
from longhmm.model.hmm import HMM

Params = Mapping[str, jax.Array]
BACKENDS: tuple[Backend, ...] = (cpp, reference)  # type: ignore[assignment]


def choose(kind: int, n_states: int, time_varying: bool) -> Backend:
    """The first backend that supports such potentials here."""
    return next(each for each in BACKENDS if each.supports(kind, n_states, time_varying))


class Statistics(NamedTuple):
    """Expected complete-data statistics, of each chunk (leading axis W) or summed.

    Attributes:
        log_likelihood: of the core rows, without the base measure.
        first: `(..., K)`, expected first states of sequences.
        transitions: `(..., K, K)`, expected transitions.
        centred: `n_ij - A_ij n_i.`, precise also where large counts cancel.
        natural: for every free emission parameter, and every parameter of transitions that vary, the derivative of the
            expected log density with respect to its natural value.
    """

    log_likelihood: Any
    first: Any
    transitions: Any
    centred: Any
    natural: dict[str, Any]


class Potentials(NamedTuple):
    """Potentials for a backend, and the pull-back of marginals to derivatives by natural parameters."""

    lowered: Lowered
    transition: Any
    pull: Callable[[ChunkStatistics], dict[str, jax.Array]]


def lower(model: HMM, params: Params, rows: Rows | None, numbers: Any = None, *, per_chunk: bool = False) -> Potentials:
    """Potentials of rows, from their `numbers` where the emission's lowering has made some.

    Rows may have a leading axis of chunks, `(W, n, ...)`; they are then laid end to end, and derivatives of every chunk
    can be had (`per_chunk`).
    """
    transition, pull_transition = _transition(model, params, rows)
    if numbers is not None:
        lowering = model.emission.lowering
        assert lowering is not None
        natural = lowering.natural(params).astype(params["initial"].dtype)
        lowered = Lowered(numbers, natural, lowering.kind, lowering.width, lowering.sums)

        def from_sums(found: ChunkStatistics) -> dict[str, jax.Array]:
            if per_chunk:
                return jax.vmap(lambda sums: lowering.gradient(params, sums))(found.sums)
            return lowering.gradient(params, found.sums)

        return Potentials(lowered, transition, from_sums)
    assert rows is not None
    free = {name: params[name] for name in model.emission.free_names}

    def of_one(chunk: Rows) -> tuple[jax.Array, Any]:
        return jax.vjp(lambda at: model.log_likelihoods({**params, **at}, chunk), free)

    many = jnp.ndim(rows.values) == 3
    logs, pull = jax.vmap(of_one)(rows) if many else of_one(rows)
    n_states = params["initial"].shape[-1]
    pair = logs.ndim - many == 3
    event = (n_states, n_states) if pair else (n_states,)
    lowered = Lowered(logs.reshape(-1, *event), None, PAIR if pair else PRECOMPUTED, n_states, 0)

    def from_gamma(found: ChunkStatistics) -> dict[str, jax.Array]:
        gamma = found.gamma.reshape(logs.shape)
        if not many:
            return {**pull(gamma)[0], **pull_transition(found)}
        by_chunk = jax.vmap(lambda one, weights: one(weights)[0])(pull, gamma)
        return {**by_chunk, **pull_transition(found)}

    return Potentials(lowered, transition, from_gamma)


def _transition(model: HMM, params: Params, rows: Rows | None) -> tuple[Any, Callable[[ChunkStatistics], dict[str, Any]]]:
    """The transition matrix, or those of every row with their pull-back."""
    return params["transition"], lambda found: {}


def chunk_statistics(
    backend: Backend,
    potentials: Potentials,
    initial: Any,
    layout: Layout,
    *,
    boundary: Boundary = Boundary(),
    weights: Any = None,
    start: Any = None,
    wanted: Wanted = Wanted(),
) -> ChunkStatistics:
    """Marginals of chunks at given potentials."""
    lowered = potentials.lowered
    if lowered.natural is None and not wanted.forward_only:
        wanted = wanted._replace(gamma=lowered.rows.shape[0])
    return backend.statistics(
        lowered, potentials.transition, initial, layout, boundary, weights, start=start, wanted=wanted
    )


def is_varying(transition: Any) -> bool:
    """Whether matrices vary by row."""
    return isinstance(transition, Varying)
