"""Any NumPyro distribution as the emission of a hidden Markov model.

An emission turns parameters that are stacked over states into log densities `log p(y_t | x_t = k)`. It holds no
parameter values: it is a description, made once, that compiled code treats as a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, Independent, MultivariateNormal, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.errors import ModelError
from longhmm.model import data_checks
from longhmm.model.layout import Builder, Layout, build, check_names, find_layout, guess_layout, name_of, wants_integer
from longhmm.model.multivariate_normal import marginal_log_density
from longhmm.model.parameter import (
    Parameter,
    Params,
    Pending,
    draw_prior,
    fixed_array,
    full_shape,
    log_prior_density,
    make_parameter,
    portable,
)
from longhmm.model.prior_checks import check_distribution
from longhmm.model.summary import DataSummary
from longhmm.model.support import feasible, settle

_INTEGER_INTERVAL = type(constraints.integer_interval(0, 1))


class Emission:
    """Observations of a state follow a NumPyro distribution whose parameters have priors or fixed values.

    `distribution` is a NumPyro class, or any function of named parameters that returns a distribution. Each keyword is
    a prior (one for all states, or one per state with leading size K) or a fixed number or array (likewise). With
    `dim` > 1 a univariate distribution describes independent features, each with its own parameters.

    >>> import numpyro.distributions as dist
    >>> heavy = Emission(dist.StudentT, df=4.0, loc=dist.Normal(0, 10), scale=dist.HalfNormal(5))
    >>> heavy.parameters(3)["loc"].shape
    (3,)

    A subclass may write its own density: call `super().__init__(None, dim=..., **priors)` and override `log_density`;
    set the class attribute `support` if observations are not real numbers.
    """

    support: Constraint = constraints.real

    def __init__(self, distribution: Builder | None, *, dim: int = 1, **priors: Any) -> None:
        self._distribution = distribution
        self._dim = _check_dim_argument(dim)
        self._specs: dict[str, Any] = {name: _specification(name, prior) for name, prior in priors.items()}
        self._tables: dict[int, dict[str, Parameter]] = {}
        self._support_by_state = False
        if distribution is None:
            if type(self).log_density is Emission.log_density:
                raise ModelError(
                    "An emission without a distribution must override log_density: pass a NumPyro "
                    "distribution, or write a subclass."
                )
            self._vector = dim > 1
            return
        check_names(distribution, self._specs)
        n_states, layout = guess_layout(distribution, self._specs, dim)
        self._vector = layout.vector
        table = self._table(n_states, layout)
        support = check_distribution(distribution, table)
        batch_dims = 2 if dim > 1 and not layout.vector else 1
        self.support, self._support_by_state = settle(support, n_states, batch_dims)

    # -- description ---------------------------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """Number of features D."""
        return self._dim

    @property
    def name(self) -> str:
        """What messages call this emission."""
        return (
            type(self).__name__
            if self._distribution is None or type(self) is not Emission
            else name_of(self._distribution)
        )

    @property
    def vector_valued(self) -> bool:
        """Whether `log_density` takes y of shape (..., D) rather than (...,)."""
        return self._vector or self._dim > 1

    @property
    def factorises(self) -> bool:
        """Whether the features of one observation are independent given its state."""
        return not self._vector

    @property
    def is_resolved(self) -> bool:
        """Whether every prior is concrete, so that no data are needed to evaluate it."""
        return not any(isinstance(spec, Pending) for spec in self._specs.values())

    @property
    def names(self) -> list[str]:
        """The names of all parameters, free and fixed."""
        return list(self._specs)

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        """The table of parameters for K states, in the order in which they were given."""
        if n_states not in self._tables:
            self._tables[n_states] = self._table(n_states, self._layout(n_states))
        return self._tables[n_states]

    def states_differ(self, n_states: int) -> bool:
        """Whether priors or fixed values differ between states, so that states must not be relabelled."""
        return any(
            len(full_shape(spec)) == len(parameter.shape) and full_shape(spec)[0] > 1
            for parameter, spec in zip(self.parameters(n_states).values(), self._specs.values(), strict=True)
        )

    def resolve(self, summary: DataSummary) -> Emission:
        """The same emission with default priors scaled to the data; explicit priors are left alone."""
        return self

    def __repr__(self) -> str:
        parts = [] if self._distribution is None or type(self) is not Emission else [self.name]
        parts += [f"{name}={_brief(spec)}" for name, spec in self._specs.items() if not isinstance(spec, Pending)]
        if self._dim > 1:
            parts.append(f"dim={self._dim}")
        return f"{type(self).__name__}({', '.join(parts)})"

    # -- densities -----------------------------------------------------------------------------------------------

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """log p(y | x = k), shape (..., K), for fully observed y of shape (..., D), or (...,) if scalar-valued."""
        values = self._feature_log_density(params, y)
        return jnp.sum(values, -1) if self._dim > 1 and not self._vector else values

    def log_density_missing(
        self, params: Params, y: jax.Array, observed: jax.Array, *, partial: bool = True
    ) -> jax.Array:
        """log p(observed part of y | x = k), shape (..., K), for y and `observed` of shape (..., D).

        A missing value contributes likelihood 1. A partly missing row is marginalised where features are independent
        or jointly Gaussian, and otherwise counts as missing. `partial=False` promises that there are no such rows.
        """
        # Missing values are filled first: a `where` after the density alone would leave NaN in its gradient.
        if partial and self._dim > 1 and self.factorises:
            filled = jnp.where(observed, y, self._fill(y.dtype))
            return jnp.sum(jnp.where(observed[..., None, :], self._feature_log_density(params, filled), 0), -1)
        if partial and self._dim > 1 and self._distribution is not None:
            distribution = self._build(params)
            filled = jnp.where(observed, y, self._fill(y.dtype))
            if isinstance(distribution, Independent) and distribution.base_dist.event_dim == 0:
                values = distribution.base_dist.log_prob(filled[..., None, :])
                return jnp.sum(jnp.where(observed[..., None, :], values, 0), -1)
            if isinstance(distribution, MultivariateNormal):
                return marginal_log_density(distribution.loc, distribution.covariance_matrix, filled, observed)
        whole = jnp.all(observed, -1)
        filled = jnp.where(whole[..., None], y, self._fill(y.dtype))
        values = self.log_density(params, filled if self.vector_valued else filled[..., 0])
        return jnp.where(whole[..., None], values, 0)

    def log_prior(self, params: Params) -> jax.Array:
        """Log prior density of all free parameters in natural space (no Jacobian); flat priors add zero."""
        n_states = jnp.shape(params[self.names[0]])[0] if self._specs else 1
        table = self.parameters(n_states)
        return sum(
            (
                log_prior_density(parameter, jnp.asarray(params[name]))
                for name, parameter in table.items()
                if parameter.is_free
            ),
            jnp.zeros(()),
        )

    # -- draws ---------------------------------------------------------------------------------------------------

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        """Observations (n, D) given states (n,): row t is a draw of p(y | x = states[t])."""
        if self._distribution is None:
            raise ModelError(
                f"{self.name} has no way to draw observations: override sample(key, params, states) in "
                "the subclass to simulate from it."
            )
        chosen = {name: jnp.asarray(params[name])[states] for name in self._specs}
        draws = self._build(chosen).sample(key)
        return draws if draws.ndim == 2 else draws[:, None]

    def sample_prior(self, key: jax.Array, n_states: int) -> dict[str, Any]:
        """One draw of every parameter from its prior; fixed parameters have their values."""
        table = self.parameters(n_states)
        keys = jax.random.split(key, max(len(table), 1))
        return {name: draw_prior(one, parameter) for one, (name, parameter) in zip(keys, table.items(), strict=False)}

    def location(self, params: Params) -> jax.Array:
        """First component of each state's mean, shape (K,); `loc` where the mean does not exist."""
        names = [name for name in ("loc", "mean") if name in self._specs] or self.names
        fallback = jnp.asarray(params[names[0]])
        fallback = fallback.reshape(fallback.shape[0], -1)[:, 0]
        if self._distribution is None:
            return fallback
        try:
            mean = self._build(params).mean
        except (NotImplementedError, AttributeError):
            return fallback
        mean = mean.reshape(mean.shape[0], -1)[:, 0]
        return jnp.where(jnp.isfinite(mean), mean, fallback)

    # -- data ---------------------------------------------------------------------------------------------------

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        """Raise a DataError that names the first observed value, of (n, D), outside the support."""
        data_checks.check_dim(values.shape[1], self._dim, self.name)
        inside = self._inside(np.where(observed, values, 0))
        data_checks.check_values(values, observed, inside, self.support, self.name, describe)

    # -- exponential families ------------------------------------------------------------------------------------

    @property
    def is_exponential_family(self) -> bool:
        """Whether log p(y | k) = eta_k . s(y) - a_k + log h(y) is available through the three methods below."""
        return type(self).sufficient_statistics is not Emission.sufficient_statistics

    def sufficient_statistics(self, y: jax.Array) -> jax.Array | None:
        """s(y), shape (..., n_stats), or None if the emission is no exponential family."""
        return None

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array] | None:
        """(eta (K, n_stats), a (K,)), or None if the emission is no exponential family."""
        return None

    def log_base_measure(self, y: jax.Array) -> jax.Array | None:
        """log h(y), shape (...,), or None if the emission is no exponential family."""
        return None

    # -- for subclasses ------------------------------------------------------------------------------------------

    def _layout(self, n_states: int) -> Layout:
        if self._distribution is not None:
            return find_layout(self._distribution, self._specs, self._dim, n_states)
        tails = {}
        for name, spec in self._specs.items():
            shape = full_shape(spec)
            if isinstance(spec, Distribution) and spec.event_shape:
                tails[name] = tuple(spec.event_shape)
            else:
                tails[name] = shape[1:] if shape and shape[0] == n_states else shape
        return Layout(tails, self._vector)

    def _table(self, n_states: int, layout: Layout) -> dict[str, Parameter]:
        return {
            name: make_parameter(
                name, spec, n_states, layout.tails[name], integer=wants_integer(self._distribution, name, spec)
            )
            for name, spec in self._specs.items()
        }

    def _build(self, params: Params) -> Distribution:
        assert self._distribution is not None
        return build(self._distribution, params, self._specs)

    def _feature_log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """Log densities with a state axis, and with a features axis after it where features are independent."""
        distribution = self._build(params)
        values = y[..., None, :] if self.vector_valued else y[..., None]
        if isinstance(self.support, _INTEGER_INTERVAL):
            values = values.astype(jnp.int32)  # categories index a table, and missing ones are filled by now
        elif not jnp.issubdtype(values.dtype, jnp.inexact):
            values = values.astype(jnp.result_type(*(params[name] for name in self._specs), jnp.float32))
        if not self._support_by_state:
            return distribution.log_prob(values)
        # A value that only other states can produce must not reach this state's density: its gradient may be NaN.
        inside = self.support(values)
        bounds = np.broadcast_shapes(*(np.shape(bound) for bound in jax.tree.leaves(self.support)))
        safe = feasible(self.support, (*bounds, self._dim) if self._vector else bounds).astype(values.dtype)
        logs = distribution.log_prob(jnp.where(inside[..., None] if self._vector else inside, values, safe))
        return jnp.where(inside, logs, -jnp.inf)

    def _fill(self, dtype: Any) -> jax.Array:
        """One value per feature that lies in the support, or in that of the first state where states differ."""
        support = self.support
        if self._support_by_state:
            support = jax.tree.map(lambda bound: bound[0] if np.ndim(bound) else bound, support)
        return feasible(support, (self._dim,)).astype(dtype)

    def _inside(self, values: np.ndarray) -> np.ndarray:
        return data_checks.inside_support(self.support, values, by_state=self._support_by_state, vector=self._vector)


def _check_dim_argument(dim: int) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise ModelError(f"dim must be a positive integer (the number of features), but it was {dim!r}.")
    return int(dim)


def _specification(name: str, given: Any) -> Distribution | np.ndarray | Pending:
    if isinstance(given, Pending):
        return given
    if isinstance(given, Distribution):
        return portable(given)
    if isinstance(given, type):
        raise ModelError(
            f"The prior of '{name}' must be a distribution such as Normal(0, 1), but it was the class {given.__name__}."
        )
    try:
        return fixed_array(given)
    except ModelError:
        raise ModelError(
            f"The parameter '{name}' must be a NumPyro distribution (its prior), a number or an array "
            f"(a fixed value), but it was {given!r}."
        ) from None


def _brief(spec: Distribution | np.ndarray) -> str:
    if isinstance(spec, Distribution):
        return type(spec).__name__
    return f"{spec.item():g}" if spec.ndim == 0 else f"array{spec.shape}"
