"""What transitions are: matrices with `A[i, j] = p(x_t = j | x_{t-1} = i)`, as a function of one parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longhmm.errors import ModelError
from longhmm.model.formula import FollowsFormula
from longhmm.model.parameters import Tree
from longhmm.model.registry import accepted
from longhmm.model.transitions.counted import most_probable
from longhmm.model.transitions.renumbering import Renumbered


class TransitionModel(FollowsFormula, Renumbered, Tree):
    """Transition matrices that vary by row, as a function of covariates; subclass it to make one.

    A subclass sets `n_states`, `n_covariates` and `shape`, and defines `matrices` and `log_prior`. Its parameter, named
    `parameter` among those of the model, has one unconstrained coordinate for each entry, unless `constrain`,
    `unconstrain` and `log_jacobian` say otherwise. Beside it `transition` is the matrix where all covariates are 0.
    """

    varies: bool = True  # False if there is one matrix for all rows
    dirichlet: bool = False  # whether that matrix is the parameter, with Dirichlet rows, so that closed forms hold
    exchangeable: bool = False  # whether the prior does not tell the states apart, so that they may be renumbered
    parameter: str = "coefficients"
    n_covariates: int = 0
    remembers: bool = False  # whether states count how long they have lasted: then they are made of phases
    apart = property(lambda self: self.varies or self.remembers, doc="Whether counts do not say its derivative.")
    linear: Any = None  # of which covariates logits of transitions are linear combinations, where they are
    own: Any = property(lambda self: tuple(range(self.n_covariates)), doc="Which of the covariates matrices follow.")
    fixed_rows: Mapping[int, Any] = {}
    n_states: int
    shape: tuple[int, ...]

    def between(self, n_states: int) -> TransitionModel:
        """The same between so many states, where their number was left open."""
        return self

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
        """`(n, K, K)`, the matrices of the transitions into rows with covariates `(n, C)`."""
        raise NotImplementedError

    def typical(self, parameter: Any) -> jax.Array:
        """`(K, K)`, the matrix where all covariates are 0."""
        return self.matrices(jnp.asarray(parameter), jnp.zeros((1, self.n_covariates)))[0]

    @property
    def allowed(self) -> np.ndarray:
        """`(K, K)`, True where a transition is possible."""
        return np.ones((self.n_states, self.n_states), bool)

    direct = property(lambda self: self.allowed, doc="`(K, K)`, True where one is possible without others between.")

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        """Log prior density of the parameter."""
        raise NotImplementedError

    @property
    def n_free(self) -> int:
        """Number of unconstrained coordinates."""
        return math.prod(self.shape)

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        """`(n_free,)` coordinates to the parameter."""
        return coordinates.reshape(self.shape)

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        """Inverse of `constrain`."""
        return jnp.ravel(parameter)

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        """Log volume of `constrain`, as a function of where it leads."""
        return jnp.zeros(())

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The parameter, checked, and beside it `transition`; or a refusal."""
        if self.parameter not in params:
            raise ModelError(f"params must hold '{self.parameter}', numbers of shape {self.shape}, got none.")
        found = np.asarray(params[self.parameter], np.float64)
        if found.shape != self.shape or not np.all(np.isfinite(found)):
            raise ModelError(
                f"params['{self.parameter}'] must be finite numbers of shape {self.shape}, got shape {found.shape}."
            )
        with jax.enable_x64(True):
            return {self.parameter: found, "transition": np.asarray(_typical(self, found))}

    def survival(self, params: Mapping[str, Any], lengths: np.ndarray) -> np.ndarray:
        """`(n, K, L)`, the probability that a visit lasts for more than so many rows, at parameters of n draws."""
        return np.asarray(np.diagonal(params["transition"], axis1=1, axis2=2)[..., None] ** lengths)

    def start(self, counts: np.ndarray) -> np.ndarray:
        """The most probable parameter given counted transitions `(K, K)`, all covariates taken to be 0."""
        return most_probable(self, np.asarray(counts, np.float64))

    def options(self) -> dict[str, Any]:
        """The arguments that rebuild these transitions: numbers, lists, priors and plain values."""
        return {}

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> TransitionModel:
        """Transitions between so many states, from their options."""
        return cls(**accepted(cls, {"n_states": n_states}), **options)


_typical = jax.jit(lambda moves, parameter: moves.typical(parameter))


def probabilities(name: str, given: Any, n_states: int) -> np.ndarray:
    """`(K,)`, normalised, or a refusal."""
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (n_states,) or not found.min() >= 0 or abs((total := found.sum()) - 1) > 1e-4:
        raise ModelError(f"{name} must be {n_states} probabilities that sum to 1, got {given!r}.")
    return np.asarray(found / total)
