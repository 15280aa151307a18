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
from longhmm.model.drift import Baseline, Drift, prior
from longhmm.model.emissions import Before, Emission
from longhmm.model.emissions.around import Around
from longhmm.model.formula import Formula
from longhmm.model.made_of import like_its_emission
from longhmm.model.parameters import Parameter, Params, Pending
from longhmm.model.registry import EMISSIONS
from longhmm.model.summary import DataSummary

NAME, GAIN = "drift", "gain"


@EMISSIONS.register("drifting", offered=False)
@like_its_emission("sees_transitions", "streams", "means", "cdf", "values")
class Drifting(Around):
    """`y_t - b(t)` follows an emission, with a baseline b of a few coefficients `drift (size,)`, or `(D, size)`; made
    by `Gaussian(drift=Drift(...))`, too. With a gain g, common to all features, `a + (y_t - b(t) - a) / g(t)` does,
    with a the value that it leaves where it is, amid the data; `gain (size,)` are coefficients of its logarithm. About
    0 the two could hardly be told apart: a gain moves levels that are far from 0 all alike, as a baseline does.

    Where rows depend on rows before them, the baseline is taken to stand still over these few rows. Where there is no
    row to look at, as in `means`, it has its mean, 0.

    Args:
        emission: of real numbers, without the baseline.
        drift: what the baseline is like.

    >>> import longhmm as lh
    >>> lh.Drifting(lh.StudentT(), lh.Drift(knots=10)).names
    ['df', 'loc', 'scale', 'drift']
    """

    changes = "drift"

    def __new__(cls, *args: Any, **given: Any) -> Drifting:
        return object.__new__(cls)  # whatever it is made of, and of nothing where it is copied for a worker

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

    @cached_property
    def specifications(self) -> dict[str, Any]:  # type: ignore[override]
        own = {name: each.prior or Pending(each.support) for name, each in self._own.items()}
        return {**self.emission.specifications, **own}

    @property
    def _own(self) -> dict[str, Parameter]:
        features = (self.dim,) if self.dim > 1 else ()
        kinds = {NAME: (self.drift, features)}
        if self.drift.gain is not None:
            kinds[GAIN] = self.drift.gain, ()
        return {
            name: Parameter(
                name,
                (*tail, each.size),
                prior(each, tail),
                None,
                Baseline(each),
            )
            for name, (each, tail) in kinds.items()
        }

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        return {**self.emission.parameters(n_states), **self._own}

    @property
    def shared(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.emission.shared, *self._own)

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        if name not in self._own:
            return self.emission.axes(name, n_states)
        return ("knot",) if self.dim == 1 or name == GAIN else ("feature", "knot")

    @cached_property
    def regressions(self) -> Mapping[str, Any]:  # type: ignore[override]
        """What sees columns beside the values: formulas, and the baseline, which sees the number of the row."""
        return {**self.emission.regressions, NAME: self.drift}

    @property
    def labels(self) -> dict[str, list[str]]:
        return getattr(self.emission, "labels", {})

    @property
    def is_resolved(self) -> bool:
        own = self.drift.scale is not None and (self.drift.gain is None or self.drift.about is not None)
        return self.emission.is_resolved and self.drift.is_met and own

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

    def baseline(self, params: Params, covariates: Any) -> jax.Array:
        """`(*rows, D)`, of rows with covariates `(*rows, C)`."""
        found: jax.Array = self.drift.at(jnp.asarray(params[NAME]), covariates)
        return found if self.dim > 1 else found[..., None]

    def gain(self, params: Params, covariates: Any) -> jax.Array:
        """`(*rows, 1)`, by which levels and noise are multiplied; 1 where the model has no gain."""
        if self.drift.gain is None:
            return jnp.ones(1, jnp.asarray(params[NAME]).dtype)
        return jnp.exp(self.drift.at(jnp.asarray(params[GAIN]), covariates))[..., None]

    @property
    def _about(self) -> Any:
        """`(D,)`, what a gain leaves where it is."""
        if self.drift.gain is not None and self.drift.about is None:
            raise ModelError("about must be given, as in Drift(gain=True, about=0), where no data say what it is.")
        return 0.0 if self.drift.gain is None else self.drift.about

    def _without(self, params: Params, rows: Rows) -> Rows:
        """Rows as they would be without the baseline and the gain."""
        if rows.covariates is None:
            return rows
        away, gain = self.baseline(params, rows.covariates), self.gain(params, rows.covariates)
        at = away[..., None, :], gain[..., None, :], self._about
        lags = None if rows.lags is None else _still(jnp.asarray(rows.lags), *at)
        return rows._replace(values=_still(jnp.asarray(rows.values), away, gain, self._about), lags=lags)

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        found = self.emission.log_likelihoods(params, self._without(params, rows))
        if self.drift.gain is None or rows.covariates is None:
            return found
        # Densities of what was divided, for all numbers that have a say: of a row that looks back, all or none.
        seen = jnp.ones(rows.values.shape, bool) if rows.observed is None else jnp.asarray(rows.observed)
        if rows.lags is not None and self.lags:
            whole = jnp.all(seen, axis=-1) & ~jnp.any(jnp.isnan(jnp.asarray(rows.lags)), axis=(-2, -1))
            seen = jnp.broadcast_to(whole[..., None], seen.shape)
        lost = jnp.sum(jnp.where(seen, jnp.log(self.gain(params, rows.covariates)), 0.0), axis=-1)
        return found - lost.reshape(*lost.shape, *[1] * (found.ndim - lost.ndim))

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        return self.emission.cdf_of_rows(params, self._without(params, rows))

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        away, gain = self.baseline(params, before.covariates), self.gain(params, before.covariates)
        about = jnp.asarray(self._about, away.dtype)
        lags = before.lags if before.lags is None else _still(before.lags, away[:, None, :], gain[..., None, :], about)
        return (
            away + about + gain * (self.emission.sample_after(key, params, states, before._replace(lags=lags)) - about)
        )

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        """Of the emission without a baseline, which is found with everything else."""
        found = self.emission.fit(groups)
        return None if found is None else {**found, **{name: np.zeros(each.shape) for name, each in self._own.items()}}


def _still(values: jax.Array, away: jax.Array, gain: jax.Array, about: Any) -> jax.Array:
    """Values as they would be without baseline and gain. NaN, a missing value, stays NaN, and no slope is NaN."""
    none, middle = jnp.isnan(values), jnp.asarray(about, away.dtype)
    return jnp.where(none, values, middle + (jnp.where(none, away + middle, values) - away - middle) / gain)
