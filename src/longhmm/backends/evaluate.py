"""From a model, its parameters and rows to marginals and gradients: the one place where potentials meet a backend.

By Fisher's identity (F8) the gradient of the log likelihood is the pull-back of the marginals through the potentials:
by an emission's lowering, from sums, or by automatic differentiation of log likelihoods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends import native, reference
from longhmm.backends.pallas import windows as pallas
from longhmm.backends.programs import on_host
from longhmm.backends.protocol import PAIR, PRECOMPUTED, Backend, Boundary, ChunkStatistics, Potentials, Varying, Wanted
from longhmm.backends.varying import Numbers, log_slopes, matrices_at, parted, precision, transition_of, varies
from longhmm.data.layout import Layout
from longhmm.data.rows import Rows
from longhmm.inference.markov import stationary
from longhmm.inference.scaling import safe_log, weighted_sum
from longhmm.model.hmm import HMM
from longhmm.model.lowering import LINEAR, TABLE
from longhmm.model.memory import unfold

Params = Mapping[str, jax.Array]
Pull = Callable[[ChunkStatistics], dict[str, jax.Array]]  # of marginals to derivatives by natural parameters
BACKENDS: tuple[Backend, ...] = (native, pallas, reference)
NO_BOUNDARY = Boundary()
SHARE = 512  # rows that are differentiated at a time: what is made on the way stays in the cache


def kind_of(emission: Any, lowering: Any) -> int:
    """How a backend is given rows of an emission, by its lowering or, where that is None, without one."""
    if lowering is not None:
        return int(lowering.kind)
    return PAIR if emission.couples else PRECOMPUTED


def choose(kind: int, n_states: int, time_varying: bool, precision: Any = np.float64) -> Backend:
    """The first backend that supports such potentials here."""
    return next(each for each in BACKENDS if each.supports(kind, n_states, time_varying, np.dtype(precision)))


def lowering_of(model: HMM, *, parts: bool = False, few: bool = False) -> Any:
    """The emission's lowering, if it serves here: only the C++ kernel knows all kinds, Gaussian rows in `parts`, and
    transitions that vary, by logits or with `few` matrices."""
    lowering, moves = model.emission.lowering, model.transitions
    if lowering is None or (parts and not lowering.partial_rows) or (moves.varies and moves.linear is None and not few):
        return None
    everywhere = (lowering.kind == LINEAR or (lowering.kind <= TABLE and not parts)) and not moves.varies
    return lowering if everywhere or native.supports(lowering.kind, model.n_states, False, np.dtype(float)) else None


def serves_many(model: HMM) -> bool:
    """Whether one call of the backend serves many points at once, so that chains are best run together."""
    kind = kind_of(model.emission, lowering_of(model))
    return choose(kind, model.n_states, model.transitions.varies, np.float32).many_points


@contextmanager
def in_double(double: bool = True) -> Iterator[None]:
    """Programs in double precision run on the CPU if its kernel is there, also beside a GPU, whose kernel is single."""
    with jax.enable_x64(double), on_host() if double and native.available() else nullcontext():
        yield


class Statistics(NamedTuple):
    """Expected complete-data statistics, of each chunk (leading axis W) or summed."""

    log_likelihood: Any  # of the core rows, without the base measure
    first: Any  # `(..., K)`, expected first states of sequences
    transitions: Any  # `(..., K, K)`, expected transitions
    centred: Any  # `n_ij - A_ij n_i.`, precise also where large counts cancel
    natural: dict[str, Any]  # derivatives by free natural parameters, of emissions and of transitions that vary

    def total(self, weights: Any) -> Statistics:
        """The sum over windows, each times its weight, taken in double precision."""
        return jax.tree.map(lambda each: weighted_sum(weights, each).astype(each.dtype), self)


def lower(
    model: HMM, params: Params, rows: Rows | None, numbers: Any = None, *, per_chunk: bool = False, by_row: bool = False
) -> tuple[Potentials, Pull]:
    """Potentials of rows, or of the `numbers` that the emission's lowering has made of them; and their pull-back. Rows
    may have a leading axis of chunks, `(W, n, ...)`; they are then laid end to end, and derivatives come by chunk, as
    they do from numbers with `per_chunk`. `by_row`: each has a matrix, where they vary."""
    if numbers is None:
        assert rows is not None
        return _from_rows(model, params, rows, by_row)
    lowering: Any = model.emission.lowering
    own, beside = parted(numbers)
    transition, move = transition_of(model, params, beside)
    kind = (lowering.kind, lowering.width, lowering.sums)
    potentials = Potentials(own, lowering.natural(params), transition, params["initial"], *kind)
    one = lambda sums, pairs: {**lowering.gradient(params, sums), **move(pairs)}  # noqa: E731
    pulled = jax.vmap(one) if per_chunk else one
    return potentials, lambda found: pulled(found.sums, found.pairs)


def _from_rows(model: HMM, params: Params, rows: Rows, by_row: bool) -> tuple[Potentials, Pull]:
    """`HMM.potentials`, and the pull-back of marginals through them."""
    moves, n, by_chunk = model.transitions, model.n_states, jnp.ndim(rows.values) == 3
    kind = kind_of(model.emission, None)
    fused = moves.linear is not None and kind != PAIR and not by_row and native.supports(kind, n, True, np.dtype(float))
    apart = moves.varies and not fused
    names = [*model.emission.free_names, *[moves.parameter] * (apart or model.emission.sees_transitions)]

    def of_one(own: Rows) -> tuple[Any, Any]:
        def needed(free: Params) -> tuple[Any, Any]:
            at = model.potentials({**params, **free}, own)
            return at.log_likelihood, at.transition if apart else None

        return jax.vjp(needed, {name: params[name] for name in names})

    (logs, matrices), pull = jax.vmap(of_one)(rows) if by_chunk else of_one(rows)
    transition, move = Varying(matrices.reshape(-1, n, n)) if apart else params["transition"], None
    if fused:
        given = moves.shifted(jnp.asarray(rows.covariates, params["transition"].dtype))
        transition, move = transition_of(model, params, Numbers(None, given.reshape(-1, given.shape[-1])))

    def pulled(found: ChunkStatistics) -> dict[str, jax.Array]:
        gamma = found.gamma.reshape(logs.shape)
        slope = log_slopes(matrices, found.pairs.reshape(matrices.shape)) if apart else None
        moved = {} if move is None else (jax.vmap(move) if by_chunk else move)(found.pairs)
        if by_chunk:
            return jax.vmap(lambda one, *at: one(at)[0])(pull, gamma, slope) | moved
        if len(logs) % SHARE or not native.usable():
            return pull((gamma, slope))[0] | moved
        shares = jax.tree.map(lambda each: each.reshape(-1, SHARE, *each.shape[1:]), (rows, gamma, slope))
        parts = jax.lax.map(lambda at: of_one(at[0])[1](at[1:])[0], shares)
        return jax.tree.map(lambda each: jnp.sum(each, axis=0), parts) | moved

    logs_by_row = logs.reshape(-1, *(n, n)[: 1 + model.emission.couples])
    return Potentials(logs_by_row, None, transition, params["initial"], kind, n), pulled


def chunk_statistics(
    potentials: Potentials,
    layout: Layout,
    wanted: Wanted,
    boundary: Boundary = NO_BOUNDARY,
    weights: Any = None,
    *,
    backend: Backend | None = None,
) -> ChunkStatistics:
    """Marginals of chunks at given potentials, with those of rows where a pull-back needs them. Where matrices vary
    they begin from the stationary distribution of their first row, nearer to the truth than any that all share."""
    transition = potentials.transition
    if varies(transition) and boundary.start is None and boundary.forward is None:
        first = matrices_at(transition, jnp.asarray(layout.begin - layout.left))
        before = jax.lax.stop_gradient(safe_log(jax.vmap(stationary)(first)))
        boundary = boundary._replace(forward=before)
    if potentials.natural is None and not wanted.forward_only:
        wanted = wanted._replace(gamma=potentials.rows.shape[0])
    if backend is None:
        backend = choose(potentials.kind, potentials.initial.shape[-1], varies(transition), precision(transition))
    return backend.statistics(potentials, layout, boundary, weights, wanted)


def window_statistics(
    model: HMM, params: Params, rows: Rows, numbers: Any, layout: Layout, start: Any, weights: Any = None
) -> Statistics:
    """Statistics of the cores of windows: of every one, or summed by their `weights`; `start` as in `Boundary`."""
    outer = params
    memory, model, params = unfold(model, params)
    start = memory.start(outer, start)
    potentials, pull = lower(model, params, rows, numbers, per_chunk=weights is None)
    by_window = weights is None or numbers is None  # derivatives of log likelihoods come window by window
    wanted, together = Wanted(per_chunk=by_window), None if by_window else weights
    found = chunk_statistics(potentials, layout, wanted, Boundary(start=start), together)
    statistics: Statistics = memory.folded(Statistics(*found[:4], pull(found)))
    return statistics.total(weights) if by_window and weights is not None else statistics


def window_marginals(
    logs: jax.Array, transition: jax.Array, initial: Any, layout: Layout, start: Any
) -> ChunkStatistics:
    """Marginals of windows with log likelihoods `(W, width, K)`, laid end to end; `gamma` has the same shape."""
    n = logs.shape[-1]
    potentials = Potentials(logs.reshape(-1, n), None, transition, initial, PRECOMPUTED, n)
    found = chunk_statistics(potentials, layout, Wanted(per_chunk=True), Boundary(start=start))
    return found._replace(gamma=found.gamma.reshape(logs.shape))
