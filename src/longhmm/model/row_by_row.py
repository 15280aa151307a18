"""Models whose rows depend on covariates or on what came before them, one row after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError
from longhmm.model.emissions import Before
from longhmm.model.formula import from_table, transitions_into
from longhmm.model.memory import times_matrix

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences
    from longhmm.model.hmm import HMM


def checked_covariates(model: HMM, given: Any, length: int, origin: int = 0) -> np.ndarray:
    """`(length, C)`, of rows from `origin` on, or a refusal; without columns where the model needs none."""
    given = from_table(model.formulas, given, length, origin) if model.formulas else given
    found = np.zeros((length, 0)) if given is None else np.asarray(given, np.float64)
    found = found[:, None] if found.ndim == 1 else found
    wanted = model.n_covariates or found.shape[-1]
    if found.shape != (length, wanted) or not np.all(np.isfinite(found)):
        raise ModelError(f"covariates must be finite numbers of shape ({length}, {wanted}), got shape {found.shape}.")
    return found


def row_by_row(
    model: HMM, params: Mapping[str, np.ndarray], covariates: np.ndarray, key: jax.Array, block: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Where each piece of `block` rows begins, its states, and its observations."""
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        first = jax.random.categorical(jax.random.fold_in(key, 0), jnp.log(arrays["initial"]), shape=(1,))
        # Where rows depend on the state before them, `initial` is the distribution of the one before the first row.
        fresh = jnp.asarray(not model.emission.couples)
        here = Ahead(first, jnp.full((1, model.lags, model.dim), jnp.nan), fresh)
    for index in range(-(-len(covariates) // block)):
        start = index * block
        rows = covariates[start : start + block]
        padded = np.pad(rows, ((0, block - len(rows)), (0, 0)))
        with jax.enable_x64(True):
            here, states, values = extend_paths(model, arrays, here, padded, jax.random.fold_in(key, index + 1))
        single = values if np.issubdtype(values.dtype, np.integer) else values.astype(jnp.float32)
        yield start, np.asarray(states)[0, : len(rows)].astype(np.int32), np.asarray(single)[0, : len(rows)]


def states_ahead(
    model: HMM, params: Mapping[str, np.ndarray], sequences: Sequences, states: np.ndarray, start: int, steps: int
) -> np.ndarray:
    """`(n, K)`, distributions of states of the rows from `start` on, each from one of those `steps` rows before."""
    if not model.transitions.varies:
        return times_matrix(states, np.linalg.matrix_power(params["transition"], steps))
    early = start - steps + 1
    matrices = transitions_into(model, params, sequences.rows(max(early, 0), start + len(states)).covariates)
    # Rows without a row so far back are not valid: any matrix will do.
    matrices = np.concatenate([matrices[:1]] * max(-early, 0) + [matrices])
    for step in range(steps):
        states = np.einsum("nk,nkj->nj", states, matrices[step : step + len(states)])
    return states


class Ahead(NamedTuple):
    """Where several paths stand: `states` `(P,)`, the rows before `(P, p, D)`, the nearest first, and whether these are
    the states of the next rows already."""

    states: Any
    lags: Any
    fresh: Any


@jax.jit
def extend_paths(
    model: HMM, params: Mapping[str, jax.Array], here: Ahead, covariates: jax.Array, key: jax.Array
) -> tuple[Ahead, jax.Array, jax.Array]:
    """Paths extended by as many rows as there are covariates `(n, C)`: where they stand then, states `(P, n)`, and
    observations `(P, n, D)`."""
    moves, count = model.transitions, here.states.shape[0]
    logs = jnp.log(moves.matrices(params[moves.parameter], jnp.asarray(covariates)))

    def step(here: Ahead, row: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Ahead, tuple[jax.Array, jax.Array]]:
        matrix, covariate, key = row
        move, noise = jax.random.split(key)
        states = jnp.where(here.fresh, here.states, jax.random.categorical(move, matrix[here.states]))
        beside = jnp.broadcast_to(covariate, (count, *covariate.shape))
        values = model.emission.sample_after(noise, params, states, Before(here.states, here.lags, beside))
        lags = jnp.concatenate([values[:, None].astype(here.lags.dtype), here.lags], axis=1)[:, : here.lags.shape[1]]
        return Ahead(states, lags, jnp.asarray(False)), (states, values)

    rows = (logs, jnp.asarray(covariates), jax.random.split(key, logs.shape[0]))
    here, (states, values) = jax.lax.scan(step, here, rows)
    return here, states.T, jnp.swapaxes(values, 0, 1)
