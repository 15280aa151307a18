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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from longhmm.errors import ModelError
from longhmm.inference.scaling import product, safe_log
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel
from longhmm.model.tree import Named


@dataclass(frozen=True)
class Sticky:
    """Dirichlet concentrations that favour staying: `stay` on the diagonal, `move` everywhere else."""

    stay: float = 10.0
    move: float = 1.0

    def matrix(self, n_states: int) -> np.ndarray:
        return np.full((n_states, n_states), float(self.move)) + np.eye(n_states) * (self.stay - self.move)


@TRANSITIONS.register("dirichlet")
class Transitions(TransitionModel):
    """Independent Dirichlet rows. A concentration of 0 forbids a transition; `fixed_rows` are known exactly.

    `prior` is a number, an array, or `Sticky`. Which transitions are possible is structure; concentrations and
    probabilities are numbers.
    """

    varies, parameter = False, "transition"

    def __init__(self, n_states: int, prior: Any = 1.0, fixed_rows: Mapping[int, Any] | None = None) -> None:
        try:
            given = prior.matrix(n_states) if isinstance(prior, Sticky) else np.asarray(prior, dtype=np.float64)
            self.concentration = np.broadcast_to(given, (n_states, n_states)).copy()
        except (TypeError, ValueError):
            raise ModelError(
                f"transition_prior must be a number, an array that broadcasts to ({n_states}, {n_states}), or "
                f"Sticky(...), got {prior!r}."
            ) from None
        if not np.all(np.isfinite(self.concentration) & (self.concentration >= 0)):
            raise ModelError(f"transition_prior must hold finite numbers of at least 0, got {prior!r}.")
        allowed = self.concentration > 0
        self.fixed_rows = Named()
        for row, values in (fixed_rows or {}).items():
            known = np.asarray(values, dtype=np.float64)
            if not 0 <= int(row) < n_states:
                raise ModelError(f"fixed_rows must name states from 0 to {n_states - 1}, got {row!r}.")
            if known.shape != (n_states,) or np.any(known < 0) or abs(known.sum() - 1) > 1e-6:
                raise ModelError(
                    f"fixed_rows[{row}] must be {n_states} probabilities that sum to 1, got {np.asarray(values)!r}."
                )
            self.fixed_rows[int(row)] = known / known.sum()
            allowed[int(row)] = known > 0
        if not allowed.any(axis=1).all():
            raise ModelError(
                f"transition_prior must leave at least one transition out of state {np.argmin(allowed.any(axis=1))}, "
                "got only zeros in that row."
            )
        self.n_states, self.shape = n_states, (n_states, n_states)
        self._pattern = tuple(map(tuple, allowed.tolist()))

    def __str__(self) -> str:
        low, high = float(self.concentration.min()), float(self.concentration.max())
        forbidden = int((self.concentration == 0).sum())
        text = f"Dirichlet rows, concentration {low:g}" + ("" if low == high else f" to {high:g}")
        return text + (f", {forbidden} transitions forbidden" if forbidden else "")

    def matrices(self, transition: jax.Array, covariates: jax.Array) -> jax.Array:
        """The same for every row."""
        return jnp.broadcast_to(transition, (covariates.shape[0], *self.shape))

    def typical(self, transition: jax.Array) -> jax.Array:
        return transition

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        transition = _checked(params, self.shape)
        if np.any(transition[~self.allowed] > 0):
            row, column = np.argwhere((transition > 0) & ~self.allowed)[0]
            raise ModelError(
                f"params['transition'] must be 0 where the model forbids a transition, got "
                f"{transition[row, column]} from state {row} to state {column}."
            )
        return {"transition": transition}

    def start(self, counts: np.ndarray) -> np.ndarray:
        weights = np.where(self.allowed, counts + np.minimum(self.concentration, 1.0) + 1e-3, 0.0)
        return np.asarray(self._with_fixed_rows(weights / weights.sum(axis=1, keepdims=True)))

    def options(self) -> dict[str, Any]:
        fixed = {str(row): known.tolist() for row, known in self.fixed_rows.items()}
        return {"concentration": self.concentration.tolist(), "fixed_rows": fixed}

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> Transitions:
        fixed = {int(row): known for row, known in options["fixed_rows"].items()}
        return cls(n_states, options["concentration"], fixed)

    @cached_property
    def allowed(self) -> np.ndarray:
        """`(K, K)`, True where a transition is possible."""
        return np.array(self._pattern)

    @cached_property
    def free_rows(self) -> np.ndarray:
        """`(K,)`, True for rows that are inferred: not fixed and with more than one allowed entry."""
        return np.asarray((self.allowed.sum(axis=1) > 1) & ~self._is_fixed)

    @property
    def _is_fixed(self) -> np.ndarray:
        return np.isin(np.arange(self.n_states), list(self.fixed_rows))

    @cached_property
    def exchangeable(self) -> bool:
        """True if the prior does not tell the states apart, so that they may be renumbered."""
        diagonal, off = np.diag(self.concentration), self.concentration[~np.eye(self.n_states, dtype=bool)]
        alike = np.ptp(diagonal) == 0 and (off.size == 0 or np.ptp(off) == 0)
        return bool(alike and not self.fixed_rows)

    # -- coordinates -----------------------------------------------------------------------------------------------

    @cached_property
    def _basis(self) -> np.ndarray:
        """`(K, K, K - 1)`: row i holds the orthonormal log-ratio basis of its allowed entries, padded with zeros."""
        from scipy.linalg import helmert

        basis = np.zeros((*self.shape, max(self.n_states - 1, 0)))
        for row in np.flatnonzero(self.free_rows):
            entries = np.flatnonzero(self.allowed[row])
            basis[row, entries, : len(entries) - 1] = helmert(len(entries)).T
        return basis

    @cached_property
    def _slots(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column, in the padded `(K, K - 1)` layout, of every unconstrained coordinate."""
        sizes = np.where(self.free_rows, self.allowed.sum(axis=1) - 1, 0)
        rows, columns = np.nonzero(np.arange(max(self.n_states - 1, 0)) < sizes[:, None])
        return rows.astype(np.int32), columns.astype(np.int32)

    @property
    def n_free(self) -> int:
        """Number of unconstrained coordinates."""
        return len(self._slots[0])

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        """`(n_free,)` coordinates to the transition matrix."""
        dtype, shape = coordinates.dtype, (self.n_states, max(self.n_states - 1, 0))
        whole = self.n_free == math.prod(shape)
        padded = coordinates.reshape(shape) if whole else jnp.zeros(shape, dtype).at[self._slots].set(coordinates)
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
        return jnp.asarray(self._with_fixed_rows(jnp.where(self.free_rows[:, None], rows, only)))

    def sample_prior(self, rng: np.random.Generator) -> np.ndarray:
        """One transition matrix from the prior."""
        matrix = np.zeros(self.shape)
        for row, entries in enumerate(self.allowed):
            matrix[row, entries] = rng.dirichlet(self.concentration[row, entries]) if row not in self.fixed_rows else 1
        return np.asarray(self._with_fixed_rows(matrix))

    def _with_fixed_rows(self, matrix: Any) -> Any:
        if not self.fixed_rows:
            return matrix
        numbers = jnp if isinstance(matrix, jax.Array) else np
        rows = [self.fixed_rows.get(row, np.zeros(self.n_states)) for row in range(self.n_states)]
        fixed = numbers.stack([numbers.asarray(row, matrix.dtype) for row in rows])
        return numbers.where(self._is_fixed[:, None], fixed, matrix)


def _checked(params: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """A matrix of probabilities, or a refusal."""
    if "transition" not in params:
        raise ModelError(f"params must hold 'transition', an array of shape {shape}, got none.")
    try:
        matrix = np.asarray(params["transition"], dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.shape != shape:
        raise ModelError(
            f"params['transition'] must be an array of numbers of shape {shape}, got "
            f"{'shape ' + str(matrix.shape) if matrix.size else repr(params['transition'])}."
        )
    sums = matrix.sum(axis=1)
    if not np.all(matrix >= 0) or np.any(np.abs(sums - 1) > 1e-4):
        raise ModelError(
            f"params['transition'] must have rows of probabilities that sum to 1, got row sums of {np.round(sums, 6)}."
        )
    return np.asarray(matrix / sums[:, None])
