"""Potentials whose transitions vary by row, or whose likelihoods depend on both states, for the C++ kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.protocol import PAIR, PAIRS, Boundary, ChunkStatistics, Messages, Potentials, Varying, Wanted
from longhmm.backends.varying import Logits, precision, varies
from longhmm.data.layout import Layout
from longhmm.inference.markov import centred_counts, stationary

ONE, INDEXED, LOGITS = range(3)  # see moves.h


class Moves(NamedTuple):
    """Operands of the kernel: matrices `(M, K, K)`, index `(n,)`, covariates `(n, C)`, coefficients `(K, K, 1 + C)`."""

    matrices: Any
    index: Any
    covariates: Any
    coefficients: Any

    def of(self, kind: Any) -> list[jax.Array]:
        return [jnp.asarray(each, jnp.int32 if at == 1 else kind) for at, each in enumerate(self)]


def by_row(potentials: Potentials) -> bool:
    """Whether every row has a matrix of its own."""
    return potentials.kind in PAIRS or varies(potentials.transition)


def flags(**given: Any) -> dict[str, np.int32]:
    """Attributes of a call."""
    return {name: np.int32(value) for name, value in given.items()}


def asked(boundary: Boundary, wanted: Wanted) -> dict[str, np.int32]:
    """What is told and asked of chunks, as attributes."""
    ends = flags(given_before=boundary.forward is not None, given_after=boundary.backward is not None)
    gives = flags(gamma_wanted=wanted.gamma > 0, edges_wanted=wanted.messages)
    return {**ends, **gives, **flags(per_window=wanted.per_chunk, forward_only=wanted.forward_only)}


def moves_of(potentials: Potentials) -> tuple[Moves, dict[str, Any]]:
    """Operands, what is not there has a place all the same; and attributes."""
    transition, n = potentials.transition, potentials.initial.shape[-1]
    rows = flags(kind=potentials.kind, width=n * n if potentials.kind == PAIR else potentials.width)
    none = Moves(jnp.ones((1, n, n)), jnp.zeros(1), jnp.zeros((1, 1)), jnp.zeros((1, 1, 1)))
    if isinstance(transition, Logits):
        given = none._replace(covariates=transition.covariates, coefficients=transition.coefficients)
        return given, {**rows, **flags(source=LOGITS, by_index=False)}
    if isinstance(transition, Varying):
        looked_up = transition.index is not None
        index = transition.index if looked_up else none.index
        attributes = flags(source=INDEXED, by_index=looked_up)
        return none._replace(matrices=transition.matrices, index=index), {**rows, **attributes}
    return none._replace(matrices=transition), {**rows, **flags(source=ONE, by_index=False)}


def statistics(
    call: Any, potentials: Potentials, layout: Layout, boundary: Boundary, weights: Any, wanted: Wanted
) -> ChunkStatistics:
    """Marginals of the cores."""
    transition, n, size = potentials.transition, potentials.initial.shape[-1], layout.size
    kind, pair, varying = precision(transition), potentials.kind in PAIRS, varies(transition)
    moves, attributes = moves_of(potentials)
    lead = (size,) if wanted.per_chunk else ()
    moved: tuple[int, ...] = (1,)
    summed = varying and wanted.transitions and not wanted.forward_only
    if summed:
        rows = isinstance(transition, Varying) and transition.index is None
        moved = (*(() if rows else lead), *transition[0].shape)
    width = (n, n) if pair and not wanted.forward_only else (n,)
    shapes: tuple[tuple[int, ...], ...] = (
        lead,
        (*lead, n),
        (*lead, n, n),
        (*lead, n, potentials.sums),
        (wanted.gamma or 1, *width),
        moved,
        (4, size, n) if wanted.messages else (1, 1),
    )
    results = [*(jax.ShapeDtypeStruct(shape, kind) for shape in shapes), jax.ShapeDtypeStruct((), jnp.int32)]
    start = boundary.start
    if start is None:
        start = jnp.ones(n) if boundary.forward is not None else jax.lax.stop_gradient(stationary(transition))
    places = (layout.begin, layout.left, layout.core, layout.right, layout.opens)
    given = (potentials.initial, start, potentials.natural, boundary.forward, boundary.backward)
    operation = "longhmm_varying_f64" if kind == jnp.float64 else "longhmm_varying_f32"
    log_likelihood, first, transitions, sums, gamma, pairs, edges, impossible = call(operation, results, "sequential")(
        potentials.rows,
        *(jnp.asarray(each, jnp.int32) for each in places),
        jnp.ones(size, kind) if weights is None else weights.astype(kind),
        *moves.of(kind),
        *(jnp.zeros((1, 1), kind) if each is None else jnp.asarray(each, kind) for each in given),
        **asked(boundary, wanted),
        **flags(sums_wanted=summed),
        **attributes,
    )
    centred = jnp.zeros_like(transitions) if varying else centred_counts(transitions, transition)
    messages = Messages(*edges) if wanted.messages else None
    pairs = pairs if summed else None
    return ChunkStatistics(log_likelihood, first, transitions, centred, sums, gamma, pairs, messages, impossible)
