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
from longhmm.messages.scaling import product, safe_log
from longhmm.model.tree import Named, Tree


@dataclass(frozen=True)
class Sticky:
    """Dirichlet concentrations that favour staying: `stay` on the diagonal, `move` everywhere else."""

    stay: float = 10.0
    move: float = 1.0

    def matrix(self, n_states: int) -> np.ndarray:
        return np.full((n_states, n_states), float(self.move)) + np.eye(n_states) * (self.stay - self.move)


class TransitionModel(Tree):
    """Transition matrices that vary by row, as a function of covariates; subclass it to make one.

    A subclass sets `n_states` and `shape`, and defines `matrices` and `log_prior`. Its parameter, named `parameter`
    among those of the model, has one unconstrained coordinate for each entry, unless `constrain`, `unconstrain` and
    `log_jacobian` say otherwise. Beside it `transition` is the matrix where all covariates are 0.
    """

    varies = True
    parameter = "coefficients"
    exchangeable = False
    n_states: int
    shape: tuple[int, ...]
    n_covariates: int

    def matrices(self, coefficients: jax.Array, covariates: jax.Array) -> jax.Array:
        """`(n, K, K)`, the matrices of the transitions into rows with covariates `(n, C)`."""
        raise NotImplementedError

    def log_prior(self, coefficients: jax.Array) -> jax.Array:
        """Log prior density of the parameter."""
        raise NotImplementedError

    @property
    def n_free(self) -> int:
        """Number of unconstrained coordinates."""
        return math.prod(self.shape)

    @property
    def allowed(self) -> np.ndarray:
        """`(K, K)`, True where a transition is possible."""
        return np.ones((self.n_states, self.n_states), bool)

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        """`(n_free,)` coordinates to the parameter."""
        return coordinates.reshape(self.shape)

    def unconstrain(self, coefficients: jax.Array) -> jax.Array:
        """Inverse of `constrain`."""
        return jnp.ravel(coefficients)

    def log_jacobian(self, coefficients: jax.Array) -> jax.Array:
        """Log volume of `constrain`."""
        return jnp.zeros(())

    def typical(self, coefficients: Any) -> jax.Array:
        """`(K, K)`, the matrix where all covariates are 0."""
        return self.matrices(jnp.asarray(coefficients), jnp.zeros((1, self.n_covariates)))[0]

    def check(self, given: Any) -> np.ndarray:
        """The parameter as an array, or a refusal."""
        found = np.asarray(given, np.float64)
        if found.shape != self.shape or not np.all(np.isfinite(found)):
            raise ModelError(
                f"params['{self.parameter}'] must be finite numbers of shape {self.shape}, got shape {found.shape}."
            )
        return found


@dataclass(frozen=True, eq=False)
class Transitions(Tree):
    """Independent Dirichlet rows. A concentration of 0 forbids a transition; `fixed_rows` are known exactly.

    Which transitions are possible (`pattern`) is structure; concentrations and probabilities are numbers.
    """

    concentration: np.ndarray
    fixed_rows: Mapping[int, np.ndarray]
    pattern: tuple[tuple[bool, ...], ...]
    varies: ClassVar[bool] = False
    parameter: ClassVar[str] = "transition"

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
    def n_states(self) -> int:
        return len(self.pattern)

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
