"""Emissions on a slow baseline, which is common to all states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.drift import Baseline, Drift, RandomWalk
from longhmm.model.emissions import Before, Emission
from longhmm.model.formula import Formula
from longhmm.model.made_of import like_its_emission
from longhmm.model.memory import Memory
from longhmm.model.parameters import Parameter, Params, Pending
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary

NAME = "drift"


@EMISSIONS.register("drifting", offered=False)
@like_its_emission("sees_transitions", "streams", "means", "cdf", "values")
class Drifting(Emission):
    """`y_t - b(t)` follows an emission, with a baseline b of a few coefficients `drift (size,)`, or `(D, size)`; made
    by `Gaussian(drift=Drift(...))`, too.

    Where rows depend on rows before them, the baseline is taken to stand still over these few rows. Where there is no
    row to look at, as in `means`, it has its mean, 0.

    Args:
        emission: of real numbers, without the baseline.
        drift: what the baseline is like.

    >>> import longhmm as lh
    >>> lh.Drifting(lh.StudentT(), lh.Drift(knots=10)).names
    ['df', 'loc', 'scale', 'drift']
    """

    _density = None

    def __new__(cls, emission: Emission, drift: Any) -> Drifting:
        return object.__new__(cls)  # whatever it is made of

    def __init__(self, emission: Emission, drift: Any) -> None:
        self.emission, self.drift = emission, Drift.given(drift)
        if not isinstance(emission, Emission) or isinstance(emission, Drifting):
            raise ModelError(f"emission must be one without a drift of its own, got {emission!r}.")
        if emission.support is not constraints.real:
            raise ModelError(f"drift must be left out where observations are not any real numbers, as of {emission!r}.")

    @staticmethod
    def apart(args: Any, given: Mapping[str, Any], names_others: bool) -> tuple[list[Any], dict[str, Any], Any]:
        """Arguments of an emission without any drift, its own or that of an emission it is made of; and that drift."""
        drifts = [each.drift for each in (*args, *given.values()) if isinstance(each, Drifting)]
        drifts += [given[NAME]] if given.get(NAME) is not None else []
        if len(drifts) > 1 or names_others:
            raise ModelError(f"drift must be that of one emission, and not of a stream, got {drifts!r}.")

        def plain(each: Any) -> Any:
            return each.emission if isinstance(each, Drifting) else each

        rest = {name: plain(each) for name, each in given.items() if name != NAME}
        return list(map(plain, args)), rest, drifts[0]

    def options(self) -> dict[str, Any]:
        return {"emission": self.emission, "drift": self.drift.options()}

    def __repr__(self) -> str:
        inner = repr(self.emission)
        return f"{inner[:-1]}{', ' if not inner.endswith('()') else ''}drift={self.drift!r})"

    def _with(self, emission: Emission, drift: Drift) -> Drifting:
        found: Drifting = object.__new__(Drifting)
        found.emission, found.drift = emission, drift
        return found

    @cached_property
    def specifications(self) -> dict[str, Any]:  # type: ignore[override]
        return {**self.emission.specifications, NAME: self._own.prior or Pending(Baseline(self.drift))}

    @property
    def _own(self) -> Parameter:
        features = (self.dim,) if self.dim > 1 else ()
        prior = RandomWalk(self.drift, features) if self.drift.scale is not None else None
        return Parameter(NAME, (*features, self.drift.size), prior, None, Baseline(self.drift))

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        return {**self.emission.parameters(n_states), NAME: self._own}

    @property
    def shared(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.emission.shared, NAME)

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        if name != NAME:
            return self.emission.axes(name, n_states)
        return ("knot",) if self.dim == 1 else ("feature", "knot")

    @cached_property
    def regressions(self) -> Mapping[str, Any]:  # type: ignore[override]
        """What sees columns beside the values: formulas, and the baseline, which sees the number of the row."""
        return {**self.emission.regressions, NAME: self.drift}

    @property
    def labels(self) -> dict[str, list[str]]:
        return getattr(self.emission, "labels", {})

    @property
    def is_resolved(self) -> bool:
        return self.emission.is_resolved and self.drift.is_met and self.drift.scale is not None

    def met(self, learned: Mapping[str, Formula], columns: tuple[str, ...], seen: np.ndarray) -> Drifting:
        """The same once its formulas have learned from data, and the baseline knows of their rows."""
        inner: Any = self.emission
        inner = inner.met(learned, columns, seen) if inner.regressions else inner
        return self._with(inner, self.drift.met(columns, seen))

    def on_columns(self) -> Drifting:
        """The same, to be given columns instead of what these are made of."""
        inner: Any = self.emission
        return self._with(inner.on_columns() if inner.regressions else inner, self.drift.on_columns())

    def resolve(self, summary: DataSummary) -> Emission:
        return self._with(self.emission.resolve(summary), self.drift.resolve(summary))

    def beside(self, transitions: Any) -> Drifting:
        return self._with(self.emission.beside(transitions), self.drift)

    def memory(self, n_states: int) -> Memory | None:
        return self.emission.memory(n_states)

    def unfolded(self, n_states: int) -> Drifting:
        """On the emission of states that remember."""
        inner: Any = self.emission
        return self._with(inner.unfolded(n_states), self.drift)

    @property
    def untied(self) -> Emission:
        inner = self.emission.untied
        return self if inner is self.emission else self._with(inner, self.drift)

    def states_differ(self, n_states: int) -> bool:
        return self.emission.states_differ(n_states)

    def state_levels(self, n_states: int) -> np.ndarray:
        return self.emission.state_levels(n_states)

    def baseline(self, params: Params, covariates: Any) -> jax.Array:
        """`(*rows, D)`, of rows with covariates `(*rows, C)`."""
        found: jax.Array = self.drift.at(jnp.asarray(params[NAME]), covariates)
        return found if self.dim > 1 else found[..., None]

    def _without(self, params: Params, rows: Rows) -> Rows:
        """Rows as they would be without the baseline."""
        if rows.covariates is None:
            return rows
        away = self.baseline(params, rows.covariates)
        lags = None if rows.lags is None else jnp.asarray(rows.lags) - away[..., None, :]
        return rows._replace(values=jnp.asarray(rows.values) - away, lags=lags)

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        return self.emission.log_likelihoods(params, self._without(params, rows))

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        return self.emission.cdf_of_rows(params, self._without(params, rows))

    def log_prior(self, params: Params) -> jax.Array:
        inner = self.untied  # whose parameters are stacked over levels
        return super().log_prior(params) if inner is self else inner.log_prior(params)

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.emission.sample(key, params, states)

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        away = self.baseline(params, before.covariates)
        lags = before.lags if before.lags is None else before.lags - away[:, None, :]
        return away + self.emission.sample_after(key, params, states, before._replace(lags=lags))

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        """Of the emission without a baseline, which is found with everything else."""
        found = self.emission.fit(groups)
        return None if found is None else {**found, NAME: np.zeros(self._own.shape)}
