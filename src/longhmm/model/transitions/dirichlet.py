"""The transition matrix: its Dirichlet prior, its structural zeros, and its unconstrained coordinates.

A row with `m` allowed entries lives on a simplex of dimension `m - 1`. Its coordinates are isometric log-ratios:
`row = softmax(basis @ v)` with an orthonormal basis of the vectors that sum to zero, so that no entry is singled
out as a reference (F16). Forbidden entries are exactly zero, fixed rows have no coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from longhmm.errors import ModelError
from longhmm.inference.scaling import product, safe_log
from longhmm.model.transitions.base import TransitionModel, register
from longhmm.model.tree import Named


@dataclass(frozen=True)
class Sticky:
    """Dirichlet concentrations that favour staying: `stay` on the diagonal, `move` everywhere else."""

    stay: float = 10.0
    move: float = 1.0

    def matrix(self, n_states: int) -> np.ndarray:
        return np.full((n_states, n_states), float(self.move)) + np.eye(n_states) * (self.stay - self.move)


@register("dirichlet")
@dataclass(frozen=True, eq=False)
class Transitions(TransitionModel):
    """Independent Dirichlet rows. A concentration of 0 forbids a transition; `fixed_rows` are known exactly.

    Which transitions are possible (`pattern`) is structure; concentrations and probabilities are numbers.
    """

    concentration: np.ndarray
    fixed_rows: Mapping[int, np.ndarray]
    pattern: tuple[tuple[bool, ...], ...]
    varies: ClassVar[bool] = False
    parameter: ClassVar[str] = "transition"
    n_covariates: ClassVar[int] = 0  # type: ignore[misc]

    @staticmethod
    def build(n_states: int, prior: Any, fixed_rows: Mapping[int, Any] | None) -> Transitions:
        """Check and complete what the user gave: a number, an array, or `Sticky`."""
        try:
            given = prior.matrix(n_states) if isinstance(prior, Sticky) else np.asarray(prior, dtype=np.float64)
            concentration = np.broadcast_to(given, (n_states, n_states)).copy()
        except (TypeError, ValueError):
            raise ModelError(
                f"transition_prior must be a number, an array that broadcasts to ({n_states}, {n_states}), or "
                f"Sticky(...), got {prior!r}."
            ) from None
        if not np.all(np.isfinite(concentration) & (concentration >= 0)):
            raise ModelError(f"transition_prior must hold finite numbers of at least 0, got {prior!r}.")
        fixed = {}
        for row, values in (fixed_rows or {}).items():
            law = np.asarray(values, dtype=np.float64)
            if not 0 <= int(row) < n_states:
                raise ModelError(f"fixed_rows must name states from 0 to {n_states - 1}, got {row!r}.")
            if law.shape != (n_states,) or np.any(law < 0) or abs(law.sum() - 1) > 1e-6:
                raise ModelError(
                    f"fixed_rows[{row}] must be {n_states} probabilities that sum to 1, got {np.asarray(values)!r}."
                )
            fixed[int(row)] = law / law.sum()
        for row in range(n_states):
            if row not in fixed and not np.any(concentration[row] > 0):
                raise ModelError(
                    f"transition_prior must leave at least one transition out of state {row}, got only zeros in "
                    "that row."
                )
        allowed = concentration > 0
        for row, known in fixed.items():
            allowed[row] = known > 0
        return Transitions(concentration, Named(fixed), tuple(map(tuple, allowed.tolist())))

    @property
    def n_states(self) -> int:  # type: ignore[override]
        return len(self.pattern)

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self.n_states, self.n_states

    def matrices(self, transition: jax.Array, covariates: jax.Array) -> jax.Array:
        """The same for every row."""
        return jnp.broadcast_to(transition, (covariates.shape[0], *self.shape))

    def typical(self, transition: jax.Array) -> jax.Array:
        return transition

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        transition = _checked(params, self.n_states)
        if np.any(transition[~self.allowed] > 0):
            row, column = np.argwhere((transition > 0) & ~self.allowed)[0]
            raise ModelError(
                f"params['transition'] must be 0 where the model forbids a transition, got "
                f"{transition[row, column]} from state {row} to state {column}."
            )
        return {"transition": transition}

    def options(self) -> dict[str, Any]:
        fixed = {str(row): known.tolist() for row, known in self.fixed_rows.items()}
        return {"concentration": self.concentration.tolist(), "fixed_rows": fixed}

    @classmethod
    def rebuilt(cls, n_states: int, **options: Any) -> Transitions:
        fixed = {int(row): known for row, known in options["fixed_rows"].items()}
        return cls.build(n_states, options["concentration"], fixed)

    @cached_property
    def allowed(self) -> np.ndarray:
        """`(K, K)`, True where a transition is possible."""
        return np.array(self.pattern)

    @cached_property
    def free_rows(self) -> np.ndarray:
        """`(K,)`, True for rows that are inferred: not fixed and with more than one allowed entry."""
        free: np.ndarray = self.allowed.sum(axis=1) > 1
        free[list(self.fixed_rows)] = False
        return free

    @cached_property
    def exchangeable(self) -> bool:
        """True if the prior does not tell the states apart, so that they may be renumbered."""
        if self.fixed_rows:
            return False
        diagonal, off = np.diag(self.concentration), self.concentration[~np.eye(self.n_states, dtype=bool)]
        return bool(np.ptp(diagonal) == 0 and (off.size == 0 or np.ptp(off) == 0))

    @cached_property
    def _basis(self) -> np.ndarray:
        """`(K, K, K - 1)`: row i holds the orthonormal log-ratio basis of its allowed entries, padded with zeros."""
        n_states = self.n_states
        basis = np.zeros((n_states, n_states, max(n_states - 1, 0)))
        for row in np.flatnonzero(self.free_rows):
            entries = np.flatnonzero(self.allowed[row])
            basis[row, entries, : len(entries) - 1] = _helmert(len(entries))
        return basis

    @cached_property
    def _slots(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column, in the padded `(K, K - 1)` layout, of every unconstrained coordinate."""
        sizes = np.where(self.free_rows, self.allowed.sum(axis=1) - 1, 0)
        rows = np.repeat(np.arange(self.n_states, dtype=np.int32), sizes)
        columns = np.concatenate([np.arange(size) for size in sizes]) if sizes.sum() else np.zeros(0, int)
        return rows, columns.astype(np.int32)

    @property
    def n_free(self) -> int:
        """Number of unconstrained coordinates."""
        return len(self._slots[0])

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        """`(n_free,)` coordinates to the transition matrix."""
        dtype = coordinates.dtype
        shape = (self.n_states, max(self.n_states - 1, 0))
        if self.n_free == math.prod(shape):
            padded = coordinates.reshape(shape)
        else:
            padded = jnp.zeros(shape, dtype).at[self._slots].set(coordinates)
        logits = product(jnp.asarray(self._basis, dtype), padded)
        free = jax.nn.softmax(jnp.where(self.allowed, logits, -jnp.inf), axis=1)
        return jnp.asarray(self._with_fixed_rows(free))

    def unconstrain(self, transition: jax.Array) -> jax.Array:
        """Inverse of `constrain`."""
        logs = safe_log(transition)
        logs = jnp.where(self.allowed & jnp.isfinite(logs), logs, 0.0)
        padded = product(jnp.asarray(np.swapaxes(self._basis, 1, 2), logs.dtype), logs)
        return padded.ravel() if self.n_free == padded.size else padded[self._slots]

    def log_jacobian(self, transition: jax.Array) -> jax.Array:
        """Log volume of the map from coordinates to rows: `sum_j log A[i, j] + 1/2 log m_i` over free rows (F17)."""
        free = self.allowed & self.free_rows[:, None]
        sizes = self.allowed.sum(axis=1)[self.free_rows]
        return jnp.sum(jnp.where(free, safe_log(transition), 0.0)) + 0.5 * float(np.sum(np.log(sizes)))

    def log_prior(self, transition: jax.Array) -> jax.Array:
        """Log density of the Dirichlet rows."""
        free = self.allowed & self.free_rows[:, None]
        concentration = jnp.where(free, jnp.asarray(self.concentration, transition.dtype), 1.0)
        totals = jnp.sum(jnp.where(free, concentration, 0.0), axis=1)
        constant = jnp.sum(gammaln(jnp.where(self.free_rows, totals, 1.0))) - jnp.sum(gammaln(concentration))
        return jnp.sum((concentration - 1.0) * jnp.where(free, safe_log(transition), 0.0)) + constant

    def with_known_rows(self, rows: jax.Array) -> jax.Array:
        """A matrix with the rows that are not free, fixed or with one allowed entry, as they must be."""
        only = jnp.asarray(np.where(self.allowed, 1.0, 0.0), rows.dtype)
        known: jax.Array = self._with_fixed_rows(jnp.where(self.free_rows[:, None], rows, only))
        return known

    def sample_prior(self, rng: np.random.Generator) -> np.ndarray:
        """One transition matrix from the prior."""
        matrix = np.zeros((self.n_states, self.n_states))
        for row in range(self.n_states):
            entries = self.allowed[row]
            matrix[row, entries] = rng.dirichlet(self.concentration[row, entries]) if row not in self.fixed_rows else 1
        return np.asarray(self._with_fixed_rows(matrix))

    def _with_fixed_rows(self, matrix: Any) -> Any:
        if not self.fixed_rows:
            return matrix
        numbers = jnp if isinstance(matrix, jax.Array) else np
        rows = [self.fixed_rows.get(row, np.zeros(self.n_states)) for row in range(self.n_states)]
        is_fixed = np.isin(np.arange(self.n_states), list(self.fixed_rows))[:, None]
        return numbers.where(is_fixed, numbers.stack([numbers.asarray(row, matrix.dtype) for row in rows]), matrix)


def _helmert(size: int) -> np.ndarray:
    """Orthonormal basis `(size, size - 1)` of the vectors that sum to zero."""
    basis = np.zeros((size, size - 1))
    for column in range(size - 1):
        basis[: column + 1, column] = 1.0 / (column + 1)
        basis[column + 1, column] = -1.0
        basis[:, column] /= np.linalg.norm(basis[:, column])
    return basis


def _checked(params: Mapping[str, Any], n_states: int) -> np.ndarray:
    """A matrix of probabilities, or a refusal."""
    if "transition" not in params:
        raise ModelError(f"params must hold 'transition', an array of shape ({n_states}, {n_states}), got none.")
    try:
        matrix = np.asarray(params["transition"], dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.shape != (n_states, n_states):
        raise ModelError(
            f"params['transition'] must be an array of numbers of shape ({n_states}, {n_states}), got "
            f"{'shape ' + str(matrix.shape) if matrix.size else repr(params['transition'])}."
        )
    sums = matrix.sum(axis=1)
    if not np.all(matrix >= 0) or np.any(np.abs(sums - 1) > 1e-4):
        raise ModelError(
            f"params['transition'] must have rows of probabilities that sum to 1, got row sums of {np.round(sums, 6)}."
        )
    return matrix / sums[:, None]
