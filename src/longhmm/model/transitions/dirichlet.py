"""The usual transitions: one matrix with Dirichlet rows. Coordinates of a row are isometric log-ratios,
`softmax(basis @ v)` with an orthonormal basis of the vectors that sum to zero, so that no entry is singled out as a
reference (F16)."""

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
from longhmm.model.parameters import Named
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel, probabilities


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

    varies, dirichlet, parameter = False, True, "transition"

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
            if not 0 <= int(row) < n_states:
                raise ModelError(f"fixed_rows must name states from 0 to {n_states - 1}, got {row!r}.")
            self.fixed_rows[int(row)] = known = probabilities(f"fixed_rows[{row}]", values, n_states)
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
        return jnp.broadcast_to(transition, (covariates.shape[0], *self.shape))

    def typical(self, transition: jax.Array) -> jax.Array:
        return transition

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if "transition" not in params:
            raise ModelError(f"params must hold 'transition', an array of shape {self.shape}, got none.")
        try:
            transition = np.asarray(params["transition"], dtype=np.float64)
        except (TypeError, ValueError):
            transition = np.zeros(0)
        if transition.shape != self.shape:
            got = f"shape {transition.shape}" if transition.size else repr(params["transition"])
            raise ModelError(f"params['transition'] must be an array of numbers of shape {self.shape}, got {got}.")
        sums = transition.sum(axis=1)
        if not (transition.min() >= 0 and np.abs(sums - 1).max() <= 1e-4):
            raise ModelError(
                "params['transition'] must have rows of probabilities that sum to 1, got row sums of "
                f"{np.round(sums, 6)}."
            )
        transition = transition / sums[:, None]
        if np.count_nonzero(transition[~self.allowed]):
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
        return np.array(self._pattern)

    @cached_property
    def free_rows(self) -> np.ndarray:
        """`(K,)`, True for rows that are inferred: not fixed and with more than one allowed entry."""
        return np.asarray((self.allowed.sum(axis=1) > 1) & ~np.isin(np.arange(self.n_states), list(self.fixed_rows)))

    @cached_property
    def exchangeable(self) -> bool:  # type: ignore[override]
        diagonal, off = np.diag(self.concentration), self.concentration[~np.eye(self.n_states, dtype=bool)]
        return bool(np.ptp(diagonal) == 0 and (off.size == 0 or np.ptp(off) == 0) and not self.fixed_rows)

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
        return len(self._slots[0])

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        dtype, shape = coordinates.dtype, (self.n_states, max(self.n_states - 1, 0))
        whole = self.n_free == math.prod(shape)
        padded = coordinates.reshape(shape) if whole else jnp.zeros(shape, dtype).at[self._slots].set(coordinates)
        logits = product(jnp.asarray(self._basis, dtype), padded)
        free = jax.nn.softmax(jnp.where(self.allowed, logits, -jnp.inf), axis=1)
        return jnp.asarray(self._with_fixed_rows(free))

    def unconstrain(self, transition: jax.Array) -> jax.Array:
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
        free = self.allowed & self.free_rows[:, None]
        concentration = jnp.where(free, jnp.asarray(self.concentration, transition.dtype), 1.0)
        totals = jnp.sum(jnp.where(free, concentration, 0.0), axis=1)
        constant = jnp.sum(gammaln(jnp.where(self.free_rows, totals, 1.0))) - jnp.sum(gammaln(concentration))
        return jnp.sum((concentration - 1.0) * jnp.where(free, safe_log(transition), 0.0)) + constant

    def with_known_rows(self, rows: jax.Array) -> jax.Array:
        """A matrix with the rows that are not free, fixed or with one allowed entry, as they must be."""
        only = jnp.asarray(np.where(self.allowed, 1.0, 0.0), rows.dtype)
        return jnp.asarray(self._with_fixed_rows(jnp.where(self.free_rows[:, None], rows, only)))

    def _with_fixed_rows(self, matrix: Any) -> Any:
        if not self.fixed_rows:
            return matrix
        numbers = jnp if isinstance(matrix, jax.Array) else np
        rows = [numbers.asarray(self.fixed_rows.get(row, matrix[row]), matrix.dtype) for row in range(self.n_states)]
        return numbers.stack(rows)
