"""Transitions that follow covariates: a multinomial logit for every row of the matrix, with staying as the reference.

`eta_ij(t) = b_ij0 + sum_c b_ijc x_tc` for j other than i, `eta_ii = 0`, and row i of the matrix into row t of the data
is the softmax of `eta_i(t)`. Coordinates are the coefficients of standardised covariates.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist

from longhmm.errors import ModelError, check_whole
from longhmm.model.formula import Formula
from longhmm.model.registry import TRANSITIONS
from longhmm.model.terms import Terms, in_precision, one_prior
from longhmm.model.transitions import TransitionModel
from longhmm.model.transitions.dirichlet import Transitions

INTERCEPT, SLOPE = dist.Normal(0.0, 5.0), dist.Normal(0.0, 2.5)


@jax.jit
def _typical(moves: Any, parameter: jax.Array) -> jax.Array:
    """`(K, K)`, the matrix where all columns have their means."""
    return jax.nn.softmax(jnp.where(moves._stay, 0.0, moves.linear.at_means(parameter)), axis=-1)


@TRANSITIONS.register("logit")
class Logit(TransitionModel):
    """Multinomial logits, linear in covariates: a formula of covariates by name, or the number of columns of an array.

    `coefficients[i, j]` belong to the logarithm of the odds of moving from i to j against staying in i, the intercept
    first; those of staying are 0. Priors are those of covariates with mean 0 and standard deviation 1: `slope` of every
    coefficient, Normal(0, 2.5) by default, and `intercept`, of the log odds where covariates have their means,
    Normal(0, 5). Coefficients of a smooth term `s(...)` share a variance that is estimated. Beside them `transition` is
    the matrix where covariates have their means.

    >>> import longhmm as lh
    >>> lh.HMM(2, lh.Poisson(), transitions=lh.Logit("~ temp + I(temp**2)")).transitions
    Logit('~ temp + I(temp**2)')
    """

    exchangeable = True
    axes = ("state", "to_state", "term")
    linear: Terms
    own = property(lambda self: self.linear.own)

    def __init__(self, covariates: int | str, *, intercept: Any = None, slope: Any = None) -> None:
        self.formula: Formula | None = None
        if isinstance(covariates, str):
            self.formula = Formula(covariates)
        else:
            check_whole("covariates", covariates, 1)
        self.intercept_prior = one_prior("intercept", INTERCEPT if intercept is None else intercept)
        self.slope_prior = one_prior("slope", SLOPE if slope is None else slope)
        self.n_states, self.is_resolved = 0, False
        self._describe(Terms.numbered(0 if isinstance(covariates, str) else covariates))

    def _describe(self, linear: Terms) -> None:
        self.linear, self.n_covariates = linear, linear.n_covariates
        self.shape = (self.n_states, self.n_states, len(linear.labels))

    def __repr__(self) -> str:
        return f"Logit({len(self.linear.columns) if self.formula is None else self.formula.text!r})"

    __str__ = __repr__

    def between(self, n_states: int) -> Logit:
        found = copy.copy(self)
        found.n_states, found.shape = n_states, (n_states, n_states, *self.shape[2:])
        return found

    def resolve(self, formula: Formula | None, columns: tuple[str, ...], seen: np.ndarray) -> Logit:
        """With the columns of its formula among those of the model, and priors scaled to them."""
        found = copy.copy(self)
        found.formula, found.is_resolved = formula, True
        found._describe(Terms.among(columns if formula is None else formula.columns, columns, seen))
        found.linear.check_slope(self.slope_prior)
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        return self.linear.columns

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.linear.labels

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
        return jax.nn.softmax(jnp.where(self._stay, 0.0, self.linear.sums(parameter, covariates)), axis=-1)

    def logits(self, parameter: jax.Array) -> jax.Array:
        """`(K, K, 1 + C)`, coefficients of the columns counted from their means, as the C++ kernel reads them."""
        found = jnp.concatenate([self.linear.at_means(parameter)[..., None], parameter[..., 1:]], axis=-1)
        return jnp.where(self._stay[..., None], 0.0, found)

    def shifted(self, covariates: Any, out: np.ndarray | None = None) -> Any:
        """`(n, C)`, its columns of covariates, counted from their means, which leaves more digits; `out`: written
        there, in its precision."""
        every = self.linear.own == tuple(range(covariates.shape[-1]))
        own = covariates if every else covariates[..., list(self.linear.own)]
        if out is None:
            return own - self.linear.centre.astype(covariates.dtype)
        return np.subtract(own, self.linear.centre, out=out)

    def typical(self, parameter: Any) -> Any:
        if not isinstance(parameter, np.ndarray):
            return _typical(self, parameter)
        # On the host, where every pass asks for it once: that needs no program.
        slopes = np.sum(parameter[..., 1:] * self.linear.centre, axis=-1)
        logits = np.where(self._stay, 0.0, parameter[..., 0] + slopes)
        found = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
        return found / np.sum(found, axis=-1, keepdims=True)

    @cached_property
    def _stay(self) -> np.ndarray:
        return np.eye(self.n_states, dtype=bool)

    @property
    def n_free(self) -> int:
        return self.n_states * (self.n_states - 1) * self.shape[2]

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        standard = jnp.zeros(self.shape, coordinates.dtype).at[~self._stay].set(coordinates.reshape(-1, self.shape[2]))
        return self.linear.natural(standard)

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        return self.linear.standard(parameter)[~self._stay].ravel()

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        return jnp.sum(~self._stay) * self.linear.log_volume(parameter.dtype)

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        standard = self.linear.standard(parameter)[~self._stay]
        intercept, slope = map(in_precision, (self.intercept_prior, self.slope_prior))
        total = jnp.sum(intercept.log_prob(standard[:, 0])) + jnp.sum(self.linear.log_prior(slope, standard[:, 1:]))
        return total - self.log_jacobian(parameter)

    def complete(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        found = super().complete(params)
        if np.any(found[self.parameter][self._stay] != 0):
            raise ModelError(f"params['{self.parameter}'] must be 0 for staying, the reference, on its diagonal.")
        return found

    def start(self, counts: np.ndarray) -> np.ndarray:
        found = np.zeros(self.shape)
        found[..., 0] = np.log((counts + 1.0) / (np.diag(counts) + 1.0)[:, None]) * ~self._stay
        return found

    def options(self) -> dict[str, Any]:
        stored = None if self.formula is None else self.formula.state
        return {
            "covariates": len(self.columns) if self.formula is None else self.formula.text,
            "intercept": self.intercept_prior,
            "slope": self.slope_prior,
            "resolved": {**self.linear.options(), "state": stored} if self.is_resolved else None,
        }

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> Logit:
        given = dict(options)
        stored = given.pop("resolved")
        found = cls(**given).between(n_states)
        if stored is not None:
            found.is_resolved = True
            if found.formula is not None:
                found.formula = Formula(found.formula.text, stored["state"])
            found._describe(Terms.rebuilt(stored))
        return found


def as_transitions(given: Any, n_states: int, prior: Any, fixed_rows: Any) -> TransitionModel:
    """What `HMM` means: a formula or a transition model, or else one matrix with this prior and these rows."""
    if given is None:
        return Transitions(n_states, prior, fixed_rows)
    if fixed_rows or not np.array_equal(prior, 1.0):
        raise ModelError("transition_prior and fixed_rows go with one matrix for all rows, not with transitions.")
    found = Logit(given) if isinstance(given, str) else given
    if not isinstance(found, TransitionModel):
        raise ModelError(f"transitions must be a formula such as '~ temp' or Logit(...), got {given!r}.")
    found = found.between(n_states)
    if found.n_states != n_states:
        raise ModelError(f"transitions must be between {n_states} states, got {found!r} between {found.n_states}.")
    return found
