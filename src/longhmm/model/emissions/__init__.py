"""What an emission is: densities `log p(y_t | x_t = k)` of parameters that are stacked over states, and what is known
about them beyond the density. It holds no parameter values; only `log_density` (or a NumPyro distribution) is needed,
and everything that answers None or 0 here is an option."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, InverseWishart, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.data.rows import Rows
from longhmm.errors import DataError, ModelError, check_whole
from longhmm.model.covariance import inverse_wishart_density
from longhmm.model.emissions.distribution import Builder, Density, find_layout, name_of
from longhmm.model.lowering import Lowering
from longhmm.model.made_of import MadeOf
from longhmm.model.memory import Dependence
from longhmm.model.normal_updates import Conjugate
from longhmm.model.parameters import (
    Named,
    Parameter,
    Params,
    Pending,
    Tree,
    brief,
    full_shape,
    make_parameter,
    prior_of,
    specification,
)
from longhmm.model.registry import EMISSIONS, accepted
from longhmm.model.summary import DataSummary
from longhmm.model.support import in_words

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences


class Before(NamedTuple):
    """What rows to be drawn may depend on: the states before them `(n,)` (`couples`), the rows before them `(n, p, D)`,
    the nearest first, and their covariates `(n, C)`."""

    states: Any
    lags: Any
    covariates: Any


@EMISSIONS.register("distribution", offered=False)
class Emission(MadeOf, Dependence, Tree):
    """Observations of a state follow a NumPyro distribution whose parameters have priors or fixed values.

    `distribution` is a NumPyro class, or any function of named parameters that returns a distribution. Each keyword is
    a prior (one for all states, or one per state with leading size K) or a fixed number or array (likewise). With
    `dim` > 1 a univariate distribution describes independent features, each with its own parameters.

    >>> import numpyro.distributions as dist
    >>> heavy = Emission(dist.StudentT, df=4.0, loc=dist.Normal(0, 10), scale=dist.HalfNormal(5))
    >>> heavy.parameters(3)["loc"].shape
    (3,)

    A subclass may write its own density: call `super().__init__(None, dim=..., **priors)` and override `log_density`,
    or `log_likelihoods` where it depends on lags or covariates; set the class attribute `support` if observations are
    not real numbers.
    """

    dim: int  # number of features D
    specifications: dict[str, Any]  # what is known of every parameter: its prior, its fixed value, or only its region
    support: Constraint = constraints.real
    lags = 0  # rows before each that `log_likelihoods` sees
    shared: tuple[str, ...] = ()  # parameters of all states together, which are not stacked over them
    has_full_covariance = False  # whether the parameters are `mean (K, D)` and `covariance (K, D, D)` of a Gaussian
    mean_name = ""  # of the parameter that is the mean of every state that has one, where there is such a parameter
    derived = ("_tables",)
    _density: Density | None

    def __init__(self, distribution: Builder | None, *, dim: int = 1, **priors: Any) -> None:
        specs = {name: specification(name, prior) for name, prior in priors.items()}
        self._describe(dim, specs, vector=dim > 1)
        if distribution is not None:
            self._density = Density.find(distribution, specs, self.dim)
            self._vector, self.support = self._density.vector, self._density.support
        elif all(getattr(type(self), own) is getattr(Emission, own) for own in ("log_density", "log_likelihoods")):
            raise ModelError(
                "An emission without a distribution must override log_density, or log_likelihoods: pass a NumPyro "
                "distribution, or write a subclass."
            )

    def _describe(self, dim: int, specs: dict[str, Any], *, vector: bool) -> None:
        check_whole("dim", dim, 1)
        self.dim, self.specifications, self._vector, self._density = int(dim), Named(specs), vector, None

    @property
    def name(self) -> str:
        """What messages call this emission."""
        density = self._density if type(self) is Emission else None
        return type(self).__name__ if density is None else name_of(density.builder)

    @property
    def vector_valued(self) -> bool:
        """Whether `log_density` takes y of shape (..., D) rather than (...,)."""
        return self._vector or self.dim > 1

    @property
    def factorises(self) -> bool:
        """Whether the features of one observation are independent given its state."""
        return not self._vector

    @property
    def is_resolved(self) -> bool:
        """Whether every prior is concrete, so that no data are needed to evaluate it."""
        return not any(isinstance(spec, Pending) for spec in self.specifications.values())

    @property
    def names(self) -> list[str]:
        """The names of all parameters, free and fixed."""
        return list(self.specifications)

    @property
    def free_names(self) -> list[str]:
        """The names of the parameters that are inferred."""
        return [name for name, spec in self.specifications.items() if isinstance(spec, Distribution | Pending)]

    @property
    def untied(self) -> Emission:
        """The emission of one level, where states share levels; else this one."""
        return self

    def state_levels(self, n_states: int) -> np.ndarray:
        """`(K,)`, which of the stacked values of each parameter a state uses: its own, unless states are tied."""
        return np.arange(n_states)

    def parameters(self, n_states: int) -> dict[str, Parameter]:
        """The table of parameters for K states, in the order in which they were given."""
        tables: dict[int, dict[str, Parameter]] = vars(self).setdefault("_tables", {})
        if n_states not in tables:
            tails, integers = self.tails(n_states), self._density.integers if self._density else ()
            tables[n_states] = {
                name: make_parameter(name, spec, n_states, tails[name], integer=name in integers)
                for name, spec in self.specifications.items()
            }
        return tables[n_states]

    def tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
        """The shape of one state's value of every parameter."""
        if self._density is not None:
            return find_layout(self._density.builder, self.specifications, self.dim, n_states)[0]
        tails = {}
        for name, spec in self.specifications.items():
            shape = full_shape(spec)
            events = tuple(spec.event_shape) if isinstance(spec, Distribution) else ()
            tails[name] = events or (shape[1:] if shape and shape[0] == n_states else shape)
        return tails

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        """Names of the axes of a parameter, for labels: states first, then features and the like."""
        tail = self.parameters(n_states)[name].shape[1:]
        if tail in ((self.dim,), (self.dim, self.dim)):
            return ("state", "feature", "with_feature")[: 1 + len(tail)]
        return ("state", *(f"{name}_{index}" for index in range(len(tail))))

    def states_differ(self, n_states: int) -> bool:
        """Whether priors or fixed values differ between states, so that states must not be relabelled."""
        given = {name: full_shape(spec) for name, spec in self.specifications.items()}
        shapes = {name: each.shape for name, each in self.parameters(n_states).items()}
        return any(len(given[name]) == len(shape) and given[name][0] > 1 for name, shape in shapes.items())

    def options(self) -> dict[str, Any]:
        """The arguments, other than priors and fixed values, that rebuild this emission."""
        given = {"distribution": self._density.builder} if type(self) is Emission and self._density else {}
        return given if self.dim == 1 else {**given, "dim": self.dim}

    def __repr__(self) -> str:
        parts = [self.name] if type(self) is Emission else []
        options = {name: value for name, value in self.options().items() if (name, value) != ("dim", 1)}
        parts += [f"{name}={value!r}" for name, value in options.items() if not callable(value)]
        given = {name: spec for name, spec in self.specifications.items() if not isinstance(spec, Pending)}
        return f"{type(self).__name__}({', '.join(parts + [f'{name}={brief(spec)}' for name, spec in given.items()])})"

    @classmethod
    def from_data(cls, data: Sequences, **priors: Any) -> Emission:
        """What a user means who gives only the name of the family."""
        dim = accepted(cls, {"dim": data.dim})
        if not dim and data.dim > 1:
            raise ModelError(
                f"the emission {EMISSIONS.name_of(cls)} describes one feature, but the data have {data.dim}: choose "
                "one of them."
            )
        return cls(**dim, **priors)

    @classmethod
    def suits(cls, summary: DataSummary) -> tuple[int, str] | None:
        """How well the data suit this family, and why; the strongest is proposed (the Gaussian always has 0)."""
        return None

    def resolve(self, summary: DataSummary) -> Emission:
        """The same emission with default priors scaled to the data; explicit priors are left alone."""
        return self

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        """Raise a DataError that names the first observed value, of (n, D), outside the support."""
        one_region = self._density is None or not self._density.by_state
        if one_region and hasattr(self.support, "lower_bound"):  # an interval holds all values if it holds the ends
            ends = np.array([[each.reduce(values, axis=None)] for each in (np.fmin, np.fmax)])
            whole = values.dtype.kind != "f" or not self.support.is_discrete
            whole = whole or not np.any(values > np.floor(values))  # NaN is not
            if whole and np.all(self.support(ends)):
                return
        elif self.support in (constraints.real, constraints.real_vector):
            return  # whatever data may hold
        table = np.where(observed, values, 0)
        if one_region:
            inside = np.asarray(self.support(table))
        elif self.vector_valued:  # some state's support is enough
            inside = np.any(np.asarray(self.support(table[:, None, :])), axis=1)
        else:  # bounds (K,) against values (n, 1)
            inside = np.any(np.asarray(self.support(table)), axis=1, keepdims=True)
        bad = observed & ~inside if inside.ndim == 2 else observed.all(-1) & ~inside
        if not bad.any():
            return
        first = int(np.flatnonzero(bad.any(-1) if bad.ndim == 2 else bad)[0])
        shown = np.array2string(values[first], precision=6)
        if bad.ndim == 2:
            feature = int(np.flatnonzero(bad[first])[0])
            shown = f"{values[first, feature]:.10g}" + (f" in feature {feature}" if self.dim > 1 else "")
        raise DataError(
            f"{describe(first)} is {shown}, but a {self.name} emission needs {in_words(self.support)}: correct the "
            "value, replace it by NaN to mark it as missing, or choose another emission."
        )

    def fill(self, dtype: Any) -> jax.Array:
        """`(D,)`, a value inside the support (of the first state where states differ), to stand for a missing one."""
        support = self.support
        if self._density is not None and self._density.by_state:
            support = jax.tree.map(lambda bound: bound[0] if np.ndim(bound) else bound, support)
        return jnp.asarray(support.feasible_like(jnp.zeros(self.dim))).astype(dtype)

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """log p(y | x = k), shape (..., K), for fully observed y of shape (..., D), or (...,) if scalar-valued. Of an
        emission that overrides `log_likelihoods` alone: of rows without rows before them."""
        if self._density is not None:
            return self._density.log_density(params, y)
        values = y if self.vector_valued else y[..., None]
        before = jnp.full((*values.shape[:-1], self.lags, self.dim), jnp.nan) if self.lags else None
        return self.log_likelihoods(params, Rows(values, jnp.ones(values.shape, bool), None, before))

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        """`log p(y_t | x_t = k)`, `(..., K)`, of rows that may be missing; to be overridden by emissions that see lags
        or covariates, or (with `couples`) return `(..., K, K)` given the states before and at the row.

        A missing value contributes likelihood 1. A partly missing row is marginalised where features are independent
        or jointly Gaussian, and otherwise counts as missing.
        """
        y, observed = jnp.asarray(rows.values), jnp.asarray(rows.observed)
        # Missing values are filled first: a `where` after the density alone would leave NaN in its gradient.
        if self.dim > 1 and self._density is not None:
            filled = jnp.where(observed, y, self.fill(y.dtype))
            logs = self._density.partly_observed(params, filled, observed)
            if logs is not None:
                return logs
        whole = jnp.all(observed, -1)
        filled = jnp.where(whole[..., None], y, self.fill(y.dtype))
        values = self.log_density(params, filled if self.vector_valued else filled[..., 0])
        return jnp.where(whole[..., None], values, 0)

    def log_prior(self, params: Params) -> jax.Array:
        """Log prior density of all free parameters in natural space (no Jacobian); flat priors add zero."""
        table, total = self.parameters(jnp.shape(params[self.names[0]])[0] if self.names else 1), jnp.zeros(())
        for name in self.free_names:
            prior, value = prior_of(table[name]), jnp.asarray(params[name])
            density = inverse_wishart_density(prior, value) if isinstance(prior, InverseWishart) else None
            total = total + jnp.sum(prior.log_prob(value) if density is None else density)
        return total

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        """`P(y_d < value | x = k)` and `P(y_d <= value | x = k)`, each `(n, K, D)`, for values `(n, D)`. The two differ
        for discrete observations only. None where no closed form is known."""
        return None if self._density is None else self._density.cdf(params, values)

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        """`cdf` of rows; to be overridden by emissions that see lags, covariates, or the state before a row, that
        first of `(n, K K, D)`. None for lags and pairs if not."""
        return None if self.lags or self.couples else self.cdf(params, jnp.asarray(rows.values))

    def means(self, params: Params) -> jax.Array:
        """Each state's mean, `loc` where it does not exist; `(K, D)`, or `(K, 1)` for the first feature alone."""
        names = [name for name in ("loc", "mean") if name in self.specifications] or self.names
        fallback = jnp.asarray(params[names[0]])
        fallback = fallback.reshape(fallback.shape[0], -1)
        mean = None if self._density is None else self._density.means(params)
        fallback = fallback if fallback.shape[1] == self.dim else fallback[:, :1]
        return fallback if mean is None else jnp.where(jnp.isfinite(mean), mean, fallback)

    def location(self, params: Params) -> jax.Array:
        """First component of each state's mean, shape (K,)."""
        return self.means(params)[:, 0]

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        """Observations (n, D) given states (n,): row t is a draw of p(y | x = states[t])."""
        if self._density is None:
            raise ModelError(
                f"{self.name} has no way to draw observations: override sample(key, params, states) in "
                "the subclass to simulate from it."
            )
        return self._density.sample(key, params, states)

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, before: Before) -> jax.Array:
        """Observations (n, D) given states (n,) and what came before; to be overridden by emissions that see it."""
        return self.sample(key, params, states)

    def centre(self, params: Params) -> Any:
        """`(D,)`, what is subtracted from observations before statistics are summed, so that sums keep their digits."""
        return np.zeros(self.dim)

    @property
    def lowering(self) -> Lowering | None:
        """How rows and parameters reach the fused kernels; None where log likelihoods are computed beforehand."""
        return None

    def conjugate(self, n_levels: int, centre: Any) -> Conjugate | None:
        """How parameters follow from sums over rows `y - centre`."""
        return None

    def mode(self, n_levels: int, sums: np.ndarray, at: Params, *, prior: bool) -> dict[str, np.ndarray] | None:
        """The most probable parameters given the lowering's `sums`, taken `at` others (without the prior's share where
        not `prior`)."""
        return None

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        """The most probable parameters given the rows `(n, D)` of every level."""
        return None
