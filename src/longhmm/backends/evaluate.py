"""From a model, its parameters and rows to marginals and gradients: the one place where potentials meet a backend.

By Fisher's identity (F8) the gradient of the log likelihood is the pull-back of the marginals through the potentials.
Where an emission has a lowering, the backend sums sufficient statistics and the lowering pulls them back; otherwise the
log likelihoods are evaluated once, and automatic differentiation does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends import cpp, reference
from longhmm.backends.pallas import windows as pallas
from longhmm.backends.protocol import (
    PAIR,
    PRECOMPUTED,
    Backend,
    Boundary,
    ChunkStatistics,
    Lowered,
    Varying,
    Wanted,
    kind_of,
    weighted_sum,
)
from longhmm.data.layout import Layout
from longhmm.data.rows import Rows
from longhmm.inference.markov import stationary
from longhmm.inference.scaling import safe_log
from longhmm.model.hmm import HMM

Params = Mapping[str, jax.Array]
BACKENDS: tuple[Backend, ...] = (cpp, pallas, reference)  # type: ignore[assignment]


NO_BOUNDARY, PLAIN = Boundary(), Wanted()


def choose(kind: int, n_states: int, time_varying: bool, precision: Any = np.float64) -> Backend:
    """The first backend that supports such potentials here."""
    return next(each for each in BACKENDS if each.supports(kind, n_states, time_varying, np.dtype(precision)))


def serves_many(model: HMM) -> bool:
    """Whether one call of the backend serves many points at once, so that chains are best run together."""
    kind = kind_of(model.emission, model.emission.lowering)
    return choose(kind, model.n_states, model.transitions.varies, np.float32).many_points


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

    def total(self, weights: Any) -> Statistics:
        """The sum over windows, each times its weight, taken in double precision."""
        return jax.tree.map(lambda each: weighted_sum(weights, each).astype(each.dtype), self)


class Potentials(NamedTuple):
    """Potentials for a backend, and the pull-back of marginals to derivatives by natural parameters."""

    lowered: Lowered
    transition: Any
    pull: Callable[[ChunkStatistics], dict[str, jax.Array]]


def lower(model: HMM, params: Params, rows: Rows | None, numbers: Any = None, *, per_chunk: bool = False) -> Potentials:
    """Potentials of rows, from their `numbers` where the emission's lowering has made some.

    Rows may have a leading axis of chunks, `(W, n, ...)`; they are then laid end to end, and derivatives come chunk by
    chunk, as they do from numbers with `per_chunk`.
    """
    if numbers is None:
        assert rows is not None
        return Potentials(*_from_rows(model, params, rows))
    lowered, pull = _from_numbers(model, params, numbers, per_chunk)
    if not model.transitions.varies:
        return Potentials(lowered, params["transition"], pull)
    assert rows is not None
    _, transition, pull_transition = _from_rows(model, params, rows, with_emission=False)
    return Potentials(lowered, transition, lambda found: {**pull(found), **pull_transition(found)})


Pull = Callable[[ChunkStatistics], dict[str, jax.Array]]


def _from_rows(model: HMM, params: Params, rows: Rows, *, with_emission: bool = True) -> tuple[Any, Any, Pull]:
    """`HMM.potentials`, evaluated once, and the pull-back of marginals through them."""
    moves, n_states, pair = model.transitions, model.n_states, model.emission.couples
    names = [*(model.emission.free_names if with_emission else ()), *((moves.parameter,) if moves.varies else ())]
    by_chunk = jnp.ndim(rows.values) == 3

    def of_one(chunk: Rows) -> tuple[Any, Any]:
        def needed(free: Params) -> tuple[Any, Any]:
            at = model.potentials({**params, **free}, chunk)
            return at.log_likelihood if with_emission else None, at.transition if moves.varies else None

        return jax.vjp(needed, {name: params[name] for name in names})

    (logs, matrices), pull = jax.vmap(of_one)(rows) if by_chunk else of_one(rows)
    lowered: Lowered | None = None
    transition: Any = params["transition"]
    if with_emission:
        event = (n_states, n_states) if pair else (n_states,)
        lowered = Lowered(logs.reshape(-1, *event), None, PAIR if pair else PRECOMPUTED, n_states, 0)
    if moves.varies:
        flat = matrices.reshape(-1, n_states, n_states)
        transition = Varying(flat, jnp.arange(flat.shape[0]))

    def pulled(found: ChunkStatistics) -> dict[str, jax.Array]:
        gamma = found.gamma.reshape(logs.shape) if with_emission else None
        slope = None
        if moves.varies:  # d log A = d A / A
            pairs = found.pairs.reshape(matrices.shape)
            slope = jnp.where(matrices > 0, pairs / jnp.where(matrices > 0, matrices, 1.0), 0.0)
        return jax.vmap(lambda one, *at: one(at)[0])(pull, gamma, slope) if by_chunk else pull((gamma, slope))[0]

    return lowered, transition, pulled


def _from_numbers(model: HMM, params: Params, numbers: Any, per_chunk: bool) -> tuple[Lowered, Pull]:
    """Numbers of the emission's lowering, whose sums it pulls back."""
    lowering = model.emission.lowering
    assert lowering is not None
    lowered = Lowered(numbers, lowering.natural(params), lowering.kind, lowering.width, lowering.sums)

    def from_sums(found: ChunkStatistics) -> dict[str, jax.Array]:
        gradient = partial(lowering.gradient, params)
        return jax.vmap(gradient)(found.sums) if per_chunk else gradient(found.sums)

    return lowered, from_sums


def chunk_statistics(
    backend: Backend,
    potentials: Potentials,
    initial: Any,
    layout: Layout,
    *,
    boundary: Boundary = NO_BOUNDARY,
    weights: Any = None,
    start: Any = None,
    wanted: Wanted = PLAIN,
) -> ChunkStatistics:
    """Marginals of chunks at given potentials.

    Without `start`, chunks inside a sequence begin from the stationary distribution, where matrices vary from that of
    their own first row: what its covariates say is nearer to the truth than any distribution that all chunks share.
    """
    lowered, transition = potentials.lowered, potentials.transition
    if start is None and boundary.forward is None and isinstance(transition, Varying):
        first = transition.matrices[transition.index[jnp.asarray(layout.begin - layout.left)]]
        before = jax.lax.stop_gradient(safe_log(jax.vmap(stationary)(first)))
        boundary = boundary._replace(forward=before)
    if (lowered.natural is None or isinstance(transition, Varying)) and not wanted.forward_only:
        wanted = wanted._replace(gamma=lowered.rows.shape[0])
    return backend.statistics(lowered, transition, initial, layout, boundary, weights, start=start, wanted=wanted)


def window_statistics(
    model: HMM,
    params: Params,
    rows: Rows,
    numbers: Any,
    layout: Layout,
    start: Any,
    weights: Any = None,
    *,
    backend: Backend | None = None,
) -> Statistics:
    """Statistics of the cores of windows: of every one where `weights` is None, else summed, each times its weight.

    `start` `(K,)`: the distribution before windows that begin inside a sequence; None for the stationary one.
    """
    varies = model.transitions.varies
    potentials = lower(model, params, rows, numbers, per_chunk=weights is None or varies)
    backend = backend or choose(potentials.lowered.kind, model.n_states, varies, params["transition"].dtype)
    # Derivatives of log likelihoods and of matrices come window by window.
    by_window = weights is None or numbers is None or varies
    found = chunk_statistics(
        backend,
        potentials,
        params["initial"],
        layout,
        weights=None if by_window else weights,
        start=start,
        wanted=Wanted(per_chunk=by_window),
    )
    statistics = Statistics(found.log_likelihood, found.first, found.transitions, found.centred, potentials.pull(found))
    return statistics.total(weights) if by_window and weights is not None else statistics


def window_marginals(
    logs: jax.Array, transition: jax.Array, initial: Any, layout: Layout, start: Any
) -> ChunkStatistics:
    """Marginals of windows with log likelihoods `(W, width, K)`, laid end to end; `gamma` has the same shape."""
    n_states = logs.shape[-1]
    potentials = Potentials(
        Lowered(logs.reshape(-1, n_states), None, PRECOMPUTED, n_states, 0), transition, lambda _: {}
    )
    backend = choose(PRECOMPUTED, n_states, False, transition.dtype)
    wanted = Wanted(per_chunk=True)
    found = chunk_statistics(backend, potentials, initial, layout, start=start, wanted=wanted)
    return found._replace(gamma=found.gamma.reshape(logs.shape))
