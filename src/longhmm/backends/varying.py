"""Transitions that vary by row, as backends are given them, and the numbers of rows that they follow from.

Logits that are linear in covariates are made into matrices by the C++ kernel, row by row; where covariates have few
values, matrices are made once for each and looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.backends.protocol import Potentials, Varying
from longhmm.data.columns import distinct
from longhmm.data.layout import ladder
from longhmm.data.sequences import Sequences
from longhmm.inference.scaling import safe_log, weighted_sum

if TYPE_CHECKING:
    from jaxtyping import Float

MOST_DISTINCT = 64  # matrices that are looked up: they and their sums stay in the cache
MOST_MADE = 256  # the same where making one for every row would take longer than fetching it
SOME = 64  # rows whose matrices stand for all
MOST_KEPT = 1 << 27  # bytes of what was read of all rows

# What is known of data that lie in memory and do not change: distinct rows, and what was last read of all rows.
_distinct: WeakKeyDictionary[Sequences, dict[tuple[int, ...], Any]] = WeakKeyDictionary()
_whole: WeakKeyDictionary[Sequences, tuple[Any, jax.Array]] = WeakKeyDictionary()


class Logits(NamedTuple):
    """Transition matrices by row: of `[i, j]` the logit against others of row i is linear in the row's covariates."""

    coefficients: Float[Any, "K K terms+1"]  # the intercept first
    covariates: Float[Any, "n terms"]


class Numbers(NamedTuple):
    """What a row is to backends where transitions vary: the numbers of its observation, and those of its transition."""

    rows: Any  # as without the others
    moves: Any  # `(n, C)`, columns of covariates counted from their means; or `(n,)`, which of the table's rows
    table: Any = None  # `(M, C)`, covariates that rows have; or None


def narrow(numbers: Any) -> Any:
    """On the device, in single precision."""
    narrowed = jax.tree.map(lambda each: each.astype(np.float32) if each.dtype.kind == "f" else each, numbers)
    return jax.device_put(narrowed)


Pull = Callable[[jax.Array], dict[str, jax.Array]]


def varies(transition: Any) -> bool:
    return isinstance(transition, (Varying, Logits))


def precision(transition: Any) -> Any:
    """The type of its numbers."""
    return transition[0].dtype if varies(transition) else transition.dtype


def matrices_at(transition: Any, rows: Any) -> jax.Array:
    """`(n, K, K)` of the transitions into some rows, or `(K, K)` where one serves all."""
    if isinstance(transition, Varying):
        return transition.matrices[rows if transition.index is None else jnp.asarray(transition.index)[rows]]
    if isinstance(transition, Logits):
        coefficients, seen = transition.coefficients, jnp.asarray(transition.covariates)[rows]
        sums = jnp.tensordot(seen, coefficients[..., 1:], [[-1], [-1]], precision="highest")
        return jax.nn.softmax(coefficients[..., 0] + sums, axis=-1)
    return jnp.asarray(transition)


def log_matrices_at(transition: Any, rows: Any) -> jax.Array:
    """Their logarithms, taken in the table where there is one."""
    if isinstance(transition, Varying) and transition.index is not None:
        return matrices_at(transition._replace(matrices=safe_log(transition.matrices)), rows)
    return safe_log(matrices_at(transition, rows))


def mean_matrix(transition: Any) -> jax.Array:
    """`(K, K)`, the mean of the matrices of rows here and there."""
    if not varies(transition):
        return jnp.asarray(transition)
    along = transition.covariates if isinstance(transition, Logits) else transition.index
    n = len(transition.matrices) if along is None else along.shape[0]
    return jnp.mean(matrices_at(transition, jnp.arange(0, n, max(1, n // SOME))), axis=0)


def parted(numbers: Any) -> tuple[Any, Any]:
    """Numbers of observations, and those that transitions need beside them, or None."""
    return (numbers.rows, numbers) if isinstance(numbers, Numbers) else (numbers, None)


def transition_of(model: Any, params: Any, numbers: Numbers | None) -> tuple[Any, Pull]:
    """Transitions as a backend is given them, and the pull-back of what it sums for them, as in `ChunkStatistics`."""
    if numbers is None:
        return params["transition"], lambda found: {}
    moves = model.transitions
    parameter = jnp.asarray(params[moves.parameter])
    if numbers.table is None:
        coefficients, pull = jax.vjp(moves.logits, parameter)
        return Logits(coefficients, numbers.moves), lambda found: {moves.parameter: pull(found)[0]}
    matrices, pull = jax.vjp(lambda at: moves.matrices(at, jnp.asarray(numbers.table)), parameter)
    return Varying(matrices, numbers.moves), lambda found: {moves.parameter: pull(log_slopes(matrices, found))[0]}


def with_moves(potentials: Potentials, model: Any, params: Any, numbers: Numbers | None) -> tuple[Potentials, Any]:
    """Potentials with the transitions of their rows, and the pull-back of what a backend sums for these."""
    if numbers is None:
        return potentials, lambda found: {}
    transition, move = transition_of(model, params, numbers)
    return replace(potentials, transition=transition), lambda found: move(found.pairs)


def of_windows(model: Any, numbers: np.ndarray, covariates: Any) -> Any:
    """Numbers `(..., n, w)` of windows that were read on the host, with those of their transitions where these vary."""
    if not model.transitions.varies:
        return numbers
    moves = model.transitions.shifted(covariates).astype(numbers.dtype)
    return Numbers(numbers, moves.reshape(*numbers.shape[:-1], moves.shape[-1]))


def log_slopes(matrices: jax.Array, counts: jax.Array) -> jax.Array:
    """`d log A = d A / A`, times counts, which are 0 where A is."""
    return jnp.where(matrices > 0, counts / jnp.where(matrices > 0, matrices, 1.0), 0.0)


def by_matrix(pairs: jax.Array, transition: Varying, placed: Any, weights: Any) -> jax.Array:
    """Expected transitions of each matrix from those into the core times of chunks, `(W, time, K, K)`; of every chunk
    where `weights` is None and matrices are not those of rows. `placed`: where the rows of chunks lie."""
    n_matrices = len(transition.matrices)
    zeros = jnp.zeros((n_matrices, *pairs.shape[2:]), pairs.dtype)
    index = placed.rows if transition.index is None else jnp.asarray(transition.index)[placed.rows]
    which = jnp.where(placed.core, index, n_matrices).T
    if transition.index is None:
        return zeros.at[which].set(pairs, mode="drop")
    found = jax.vmap(lambda at, own: zeros.at[at].add(own, mode="drop"))(which, pairs)
    return found if weights is None else weighted_sum(weights, found).astype(found.dtype)


class RowMoves:
    """What transitions need of the rows of some data, to be read with them."""

    def __init__(self, model: Any, sequences: Sequences) -> None:
        self.moves, self.sequences = model.transitions, sequences
        few = distinct_rows(self.moves, sequences)
        self.table: np.ndarray | None = None if few is None else few[0]
        self._index: np.ndarray | None = None if few is None else few[1]

    def read(self, start: int, stop: int, size: int | None = None) -> Any:
        """Of rows `[start, stop)`, filled up to `size`. Of all rows, which fits ask for again and again, it stays on
        the device: to copy it there costs as much as a pass over two states."""
        size = stop - start if size is None else size
        linear, own, data = self.moves.linear, tuple(self.moves.own), self.sequences
        if not data.in_memory or (start, stop) != (0, data.length) or size * len(own) * 8 > MOST_KEPT:
            return self._read(start, stop, size)
        asked = (size, self.table is None, own, linear if linear is None else np.asarray(linear.centre).tobytes())
        if data not in _whole or _whole[data][0] != asked:
            with jax.enable_x64(True):
                _whole[data] = asked, jnp.asarray(self._read(start, stop, size))
        return _whole[data][1]

    def _read(self, start: int, stop: int, size: int) -> np.ndarray:
        found: np.ndarray
        if self._index is not None:
            found = np.zeros(size, np.int32)
            found[: stop - start] = self._index[start:stop]
            return found
        covariates = self.sequences.parts["covariates"].read(start, stop)
        if not self.sequences.in_memory:
            self.sequences.check(start, {"values": np.zeros((0, 1)), "covariates": covariates})
        found = np.zeros((size, len(self.moves.columns)))
        self.moves.shifted(covariates, found[: stop - start])
        return found

    def beside(self, numbers: Any, start: int, stop: int, size: int | None = None) -> Numbers:
        """With the numbers of observations."""
        return Numbers(numbers, self.read(start, stop, size), self.table)


def distinct_rows(moves: Any, sequences: Sequences) -> tuple[np.ndarray, np.ndarray] | None:
    """Covariates `(M, C)` that rows have, and `(T,)` which of them each has; None where they are many, or in files."""
    if not sequences.in_memory:
        return None
    most = MOST_MADE if moves.linear is None else MOST_DISTINCT
    known, own = _distinct.setdefault(sequences, {}), (*moves.own, most)
    if own not in known:
        covariates = sequences.parts["covariates"].read(0, sequences.length)
        known[own] = _distinct_rows(covariates, list(moves.own), most)
    return None if known[own] is None else known[own]


def _distinct_rows(covariates: np.ndarray, own: list[int], most: int) -> tuple[np.ndarray, np.ndarray] | None:
    few = distinct(covariates[:, own], most)
    if few is None:
        return None
    found, index = few
    # Tables of similar size share programs.
    table = covariates[found + [found[-1]] * (ladder(len(found)) - len(found))]
    return table.astype(np.float64), index
