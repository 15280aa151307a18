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
from numpyro.distributions import Distribution

from longhmm.errors import ModelError, check_whole
from longhmm.model.formula import Formula
from longhmm.model.parameters import Parameter, prior_of, specification
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel
from longhmm.model.transitions.dirichlet import Transitions

INTERCEPT, SLOPE = dist.Normal(0.0, 5.0), dist.Normal(0.0, 2.5)
REAL = dist.constraints.real


_at = jax.jit(lambda moves, parameter, covariates: moves.matrices(parameter, covariates))


def _one_prior(name: str, given: Any) -> Distribution:
    prior = specification(name, given)
    if not isinstance(prior, Distribution) or prior.batch_shape or prior.event_shape:
        raise ModelError(f"{name} must be one prior for all coefficients, such as Normal(0, 1), got {given!r}.")
    return prior


@TRANSITIONS.register("logit")
class Logit(TransitionModel):
    """Multinomial logits, linear in covariates: a formula of covariates by name, or the number of columns of an array.

    `coefficients[i, j]` belong to the logarithm of the odds of moving from i to j against staying in i, the intercept
    first; those of staying are 0. Priors are those of covariates with mean 0 and standard deviation 1: `slope` of every
    coefficient, Normal(0, 2.5) by default, and `intercept`, of the log odds where covariates have their means,
    Normal(0, 5). Beside them `transition` is the matrix where covariates have their means.

    >>> import longhmm as lh
    >>> lh.HMM(2, lh.Poisson(), transitions=lh.Logit("~ temp + I(temp**2)")).transitions
    Logit('~ temp + I(temp**2)')
    """

    exchangeable = True
    axes = ("state", "to_state", "term")

    def __init__(self, covariates: int | str, *, intercept: Any = None, slope: Any = None) -> None:
        self.formula: Formula | None = None
        self.columns: tuple[str, ...] = ()
        if isinstance(covariates, str):
            self.formula = Formula(covariates)
        else:
            check_whole("covariates", covariates, 1)
            self.columns = tuple(f"x{index}" for index in range(covariates))
        self.intercept_prior = _one_prior("intercept", INTERCEPT if intercept is None else intercept)
        self.slope_prior = _one_prior("slope", SLOPE if slope is None else slope)
        self.n_states, self.is_resolved = 0, False
        self._describe(np.zeros(len(self.columns)), np.ones(len(self.columns)), tuple(range(len(self.columns))))

    def _describe(self, centre: np.ndarray, spread: np.ndarray, own: tuple[int, ...], n_covariates: int = 0) -> None:
        """Means and standard deviations of the columns, and where these stand among all covariates."""
        self.centre, self.spread, self._own = np.asarray(centre), np.asarray(spread), own
        self.n_covariates = n_covariates or len(own)
        self.shape = (self.n_states, self.n_states, 1 + len(own))

    def __repr__(self) -> str:
        return f"Logit({len(self.columns) if self.formula is None else self.formula.text!r})"

    __str__ = __repr__

    def between(self, n_states: int) -> Logit:
        found = copy.copy(self)
        found.n_states, found.shape = n_states, (n_states, n_states, *self.shape[2:])
        return found

    def resolve(self, formula: Formula | None, columns: tuple[str, ...], seen: np.ndarray) -> Logit:
        """With the columns of its formula among those of the model, and priors scaled to them."""
        found = copy.copy(self)
        found.formula, found.is_resolved = formula, True
        found.columns = columns if formula is None else formula.columns
        own = tuple(columns.index(column) for column in found.columns)
        values = seen[:, list(own)]
        spread = values.std(axis=0)
        constant = spread <= 1e-12 * np.abs(values).max(axis=0, initial=0.0)
        if constant.any():
            raise ModelError(
                f"The covariate {found.columns[int(np.argmax(constant))]!r} must vary, but it is the same in every row."
            )
        found._describe(values.mean(axis=0), spread, own, len(columns))
        return found

    @property
    def terms(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("Intercept", *self.columns)

    def matrices(self, parameter: jax.Array, covariates: jax.Array) -> jax.Array:
        own = covariates if self._own == tuple(range(covariates.shape[-1])) else covariates[..., list(self._own)]
        slopes, centre = parameter[..., 1:], jnp.asarray(self.centre, parameter.dtype)
        middle = parameter[..., 0] + jnp.sum(slopes * centre, axis=-1)
        shift = jnp.asarray(own, parameter.dtype) - centre
        logits = middle + jnp.einsum("...c,ijc->...ij", shift, slopes, precision="highest")
        return jax.nn.softmax(jnp.where(self._stay, 0.0, logits), axis=-1)

    def typical(self, parameter: Any) -> jax.Array:
        given = jnp.asarray(parameter)
        whole = jnp.zeros(self.n_covariates, given.dtype).at[np.array(self._own, int)].set(self.centre)
        found: jax.Array = _at(self, given, whole[None])[0]
        return found

    @cached_property
    def _stay(self) -> np.ndarray:
        return np.eye(self.n_states, dtype=bool)

    @property
    def n_free(self) -> int:
        return self.n_states * (self.n_states - 1) * self.shape[2]

    def constrain(self, coordinates: jax.Array) -> jax.Array:
        standard = jnp.zeros(self.shape, coordinates.dtype).at[~self._stay].set(coordinates.reshape(-1, self.shape[2]))
        slopes = standard[..., 1:] / jnp.asarray(self.spread, coordinates.dtype)
        centre = jnp.asarray(self.centre, coordinates.dtype)
        return jnp.concatenate([standard[..., :1] - jnp.sum(slopes * centre, -1, keepdims=True), slopes], axis=-1)

    def unconstrain(self, parameter: jax.Array) -> jax.Array:
        return self._standard(parameter)[~self._stay].ravel()

    def _standard(self, parameter: jax.Array) -> jax.Array:
        """The coefficients of standardised covariates."""
        slopes, dtype = parameter[..., 1:], parameter.dtype
        middle = parameter[..., :1] + jnp.sum(slopes * jnp.asarray(self.centre, dtype), -1, keepdims=True)
        return jnp.concatenate([middle, slopes * jnp.asarray(self.spread, dtype)], axis=-1)

    def log_jacobian(self, parameter: jax.Array) -> jax.Array:
        return -jnp.sum(~self._stay) * jnp.sum(jnp.log(jnp.asarray(self.spread, parameter.dtype)))

    def log_prior(self, parameter: jax.Array) -> jax.Array:
        standard, total = self._standard(parameter)[~self._stay], -self.log_jacobian(parameter)
        for prior, values in ((self.intercept_prior, standard[:, :1]), (self.slope_prior, standard[:, 1:])):
            own = prior_of(Parameter("coefficients", values.shape, prior, None, REAL))
            total = total + jnp.sum(own.log_prob(values))
        return total

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
        resolved = {"centre": self.centre.tolist(), "spread": self.spread.tolist(), "own": list(self._own)}
        resolved |= {"columns": list(self.columns), "n_covariates": self.n_covariates, "state": stored}
        return {
            "covariates": len(self.columns) if self.formula is None else self.formula.text,
            "intercept": self.intercept_prior,
            "slope": self.slope_prior,
            "resolved": resolved if self.is_resolved else None,
        }

    @classmethod
    def rebuilt(cls, n_states: int, options: Mapping[str, Any]) -> Logit:
        given = dict(options)
        stored = given.pop("resolved")
        found = cls(**given).between(n_states)
        if stored is not None:
            found.is_resolved, found.columns = True, tuple(map(str, stored["columns"]))
            if found.formula is not None:
                found.formula = Formula(found.formula.text, stored["state"])
            centre, spread = (np.array(stored[name], np.float64) for name in ("centre", "spread"))
            found._describe(centre, spread, tuple(map(int, stored["own"])), int(stored["n_covariates"]))
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
    found = found.between(n_states) if isinstance(found, Logit) else found
    if found.n_states != n_states:
        raise ModelError(f"transitions must be between {n_states} states, got {found!r} between {found.n_states}.")
    return found
