"""Emissions whose parameters follow covariates by formulas."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, biject_to

from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.emissions import Before, Emission
from longhmm.model.emissions.around import Around
from longhmm.model.formula import Formula
from longhmm.model.made_of import like_its_emission
from longhmm.model.parameters import Named, Parameter, Params, Pending
from longhmm.model.registry import EMISSIONS
from longhmm.model.regression import SUFFIX, Coefficients, Regression, as_regression, has_link
from longhmm.model.terms import has_variance

Values = dict[str, Any]


@EMISSIONS.register("by-formula", offered=False)
@like_its_emission("shared", "streams")
class ByFormula(Around):
    """An emission of which some parameters follow covariates; `Gamma(mean="~ cos(hour)")` makes one, too.

    In place of a parameter such as `rate` there is `rate_coefficients`, `(K, 1 + C)` or `(K, D, 1 + C)`, the intercept
    first, on the scale of the link (see `Regression`). Where there is no row to look at, as in `means`, covariates have
    their means.

    Args:
        emission: what rows follow, given their parameters.
        regressions: a formula or `Regression` for each parameter that has one, by name.

    >>> import longhmm as lh
    >>> import numpyro.distributions as dist
    >>> heavy = lh.Emission(dist.StudentT, df=4.0, loc=dist.Normal(0, 5), scale=dist.HalfNormal(2))
    >>> lh.ByFormula(heavy, {"loc": "~ temp"}).names
    ['df', 'loc_coefficients', 'scale']
    """

    changes = "regressions"

    def __init__(self, emission: Emission, regressions: Any) -> None:
        self.emission = emission
        found = _rebuilt(regressions) if isinstance(regressions, list) else dict(regressions)
        self.regressions = Named({name: _checked(emission, name, given) for name, given in found.items()})

    @classmethod
    def around(cls, kind: Any, args: Sequence[Any], options: Mapping[str, Any]) -> ByFormula:
        """What `kind(*args, **options)` is, of which some arguments are formulas or follow formulas themselves."""
        found: dict[str, Regression] = {}
        given = dict(options)
        for each in (*args, *options.values()):
            if getattr(each, "regressions", None) and not _follows(each):
                raise ModelError(f"{each!r} must be around {kind.__name__}(...), not inside it.")
        plain = [getattr(each, "emission", each) if _follows(each) else each for each in args]
        for each in filter(_follows, args):
            found |= each.regressions
        for name, each in options.items():
            own = as_regression(each)
            if own is not None:
                found[name], given[name] = own, own.intercept
            elif _follows(each):
                prefix = f"{name}_" if kind.names_others else ""
                found |= {f"{prefix}{inner}": regression for inner, regression in each.regressions.items()}
                given[name] = each.emission
        return cls(kind(*plain, **given), found)

    def options(self) -> dict[str, Any]:
        stored = [{"name": name, **each.options()} for name, each in self.regressions.items()]
        for each, own in zip(stored, self.regressions.values(), strict=True):
            each["slope"] = None if own.slope is None else _prior_config(own.slope)
        return {"emission": self.emission, "regressions": stored}

    def __repr__(self) -> str:
        inner, said = repr(self.emission), ", ".join(f"{name}={each!r}" for name, each in self.regressions.items())
        return f"{inner[:-1]}{', ' if not inner.endswith('()') else ''}{said})"

    @cached_property
    def specifications(self) -> dict[str, Any]:  # type: ignore[override]
        found: dict[str, Any] = {}
        for name, spec in self.emission.specifications.items():
            own = self.regressions.get(name)
            if own is None:
                found[name] = spec
            else:
                waits = isinstance(spec, Pending) or not own.is_met
                found[name + SUFFIX] = Pending(spec.support) if waits else own.prior(spec, spec.support)
        return found

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        found: dict[str, Parameter] = {}
        for name, own in self.emission.parameters(n_states).items():
            follows = self.regressions.get(name)
            if follows is None:
                found[name] = own
                continue
            shape = (*own.shape, len(follows.linear.labels))
            prior = None if own.prior is None else follows.prior(own.prior, self.region(name))
            region = Coefficients(follows.linear)
            found[name + SUFFIX] = Parameter(name + SUFFIX, shape, prior, None, region)
        return found

    def region(self, name: str) -> Any:
        """Where a parameter lives that follows covariates."""
        return self.emission.specifications[name].support

    @property
    def is_met(self) -> bool:
        """Whether its formulas have met data."""
        return all(each.is_met for each in self.regressions.values())

    @property
    def is_resolved(self) -> bool:
        return self.is_met and self.emission.is_resolved

    def met(self, learned: Mapping[str, Formula], columns: tuple[str, ...], seen: np.ndarray) -> ByFormula:
        """The same once its formulas have learned from data."""
        found = {name: each.met(learned[each.text], columns, seen) for name, each in self.regressions.items()}
        return self._with(self.emission, Named(found))

    def on_columns(self) -> ByFormula:
        """The same, to be given columns instead of what these are made of."""
        return self._with(self.emission, Named({name: each.on_columns() for name, each in self.regressions.items()}))

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        own = name.removesuffix(SUFFIX)
        if own not in self.regressions:
            return self.emission.axes(name, n_states)
        return (*self.emission.axes(own, n_states), f"{own}_term")

    @property
    def labels(self) -> dict[str, list[str]]:
        """Names along the last axis of coefficients."""
        return {f"{name}_term": list(each.linear.labels) for name, each in self.regressions.items()}

    def values(self, params: Params, covariates: Any = None) -> Values:
        """The parameters of the emission, those that follow covariates for every row `(*rows, K, ...)`; or where
        covariates have their means."""
        found = {name: value for name, value in params.items() if name.removesuffix(SUFFIX) not in self.regressions}
        for name, own in self.regressions.items():
            given, link = jnp.asarray(params[name + SUFFIX]), biject_to(self.region(name))
            middle = own.linear.at_means(given) if covariates is None else own.linear.sums(given, covariates)
            found[name] = link(middle)
        return found

    def coefficients(self, params: Params) -> dict[str, np.ndarray]:
        """Parameters of the emission as those of this one: without slopes."""
        found: dict[str, np.ndarray] = {}
        for name, value in params.items():
            own = self.regressions.get(name)
            if own is None:
                found[name] = np.asarray(value)
            else:
                middle = np.asarray(biject_to(self.region(name)).inv(jnp.asarray(value)))[..., None]
                found[name + SUFFIX] = np.pad(middle, [(0, 0)] * (middle.ndim - 1) + [(0, len(own.linear.columns))])
        return found

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        own = self.values(params, rows.covariates)
        if rows.covariates is None:
            return self.emission.log_likelihoods(own, rows)
        varying = {name: own.pop(name) for name in self.regressions}

        def of_row(values: Values, row: Rows) -> jax.Array:
            return self.emission.log_likelihoods({**own, **values}, row)

        of_rows: Any = of_row
        for _ in range(jnp.ndim(rows.values) - 1):
            of_rows = jax.vmap(of_rows)
        logs: jax.Array = of_rows(varying, rows._replace(states=None, covariates=None))
        return logs

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        own = self.values(params, rows.covariates)
        if rows.covariates is None:
            return self.emission.cdf_of_rows(own, rows)
        varying = {name: own.pop(name) for name in self.regressions}

        def of_row(values: Values, row: Rows) -> Any:
            alone = jax.tree.map(lambda each: jnp.asarray(each)[None], row)
            return jax.tree.map(lambda each: each[0], self.emission.cdf_of_rows({**own, **values}, alone))

        of_rows: Any = jax.vmap(of_row)
        found: tuple[jax.Array, jax.Array] | None = of_rows(varying, rows._replace(states=None, covariates=None))
        return found

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        return self.emission.cdf(self.values(params), values)

    def means(self, params: Params) -> jax.Array:
        return self.emission.means(self.values(params))

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        return self.emission.sample(key, self.values(params), states)

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        own = self.values(params, before.covariates)
        varying = {name: own.pop(name) for name in self.regressions}

        def of_row(key: jax.Array, values: Values, state: jax.Array, before: Before) -> jax.Array:
            alone: Before = jax.tree.map(lambda each: each[None], before)
            return self.emission.sample_after(key, {**own, **values}, state[None], alone)[0]

        return jax.vmap(of_row)(jax.random.split(key, len(states)), varying, states, before)

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        """Of the emission without covariates, from where slopes are found with everything else."""
        from longhmm.model.emission_fit import fit_groups

        rows = [Rows(values, ~np.isnan(values)) for values in groups]
        if self.lags:
            return None
        return self.coefficients(fit_groups(self.emission, rows, np.random.default_rng(0)))


def _follows(each: Any) -> bool:
    return isinstance(each, ByFormula)


def _remembers(emission: Emission) -> bool:
    """Whether rows depend on states before them by more than their own density."""
    return emission.sees_transitions or emission.memory(2) is not None


def _checked(emission: Any, name: str, given: Any) -> Regression:
    """A regression of a parameter that can have one, without the prior that the emission holds by now."""
    found = as_regression(given)
    if found is None:
        raise ModelError(f"The formula of '{name}' must be a text such as '~ temp' or a Regression, got {given!r}.")
    if not isinstance(emission, Emission) or isinstance(emission, ByFormula) or _remembers(emission):
        raise ModelError(f"Formulas need an emission without memory and without formulas of its own, got {emission!r}.")
    spec = emission.specifications.get(name)
    if not isinstance(spec, Distribution | Pending) or spec.support.event_dim or getattr(spec, "event_shape", ()):
        free = [own for own, each in emission.specifications.items() if isinstance(each, Distribution | Pending)]
        raise ModelError(
            f"'{name}' of {emission.name} cannot follow a formula: it must be a number that is free, among {free}."
        )
    if found.slope is None and isinstance(spec, Distribution) and not has_link(spec.support) and not has_variance(spec):
        raise ModelError(f"The prior of '{name}' has no standard deviation: give Regression(..., slope=...).")
    copied = copy.copy(found)
    copied.intercept = None
    return copied


def _prior_config(prior: Distribution) -> dict[str, Any]:
    from longhmm.model.serialise import prior_to_config

    return prior_to_config("slope", prior)


def _rebuilt(stored: Sequence[Mapping[str, Any]]) -> dict[str, Regression]:
    from longhmm.model.serialise import prior_from_config

    try:
        slopes = [None if each["slope"] is None else prior_from_config(each["slope"]) for each in stored]
        return {each["name"]: Regression.rebuilt(each, slope) for each, slope in zip(stored, slopes, strict=True)}
    except KeyError as error:
        raise TypeError(f"stored regressions lack {error}") from None
