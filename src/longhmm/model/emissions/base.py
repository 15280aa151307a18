"""What an emission is: densities `log p(y_t | x_t = k)` of parameters that are stacked over states, and what is known
about them beyond the density.

An emission holds no parameter values: it is a description. For compiled code it is a tree whose leaves are the numbers
of its priors and its fixed values, so that one program serves every data set of the same shape. Only `log_density` (or
a NumPyro distribution) is needed; everything that answers None or 0 here is an option.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.data.rows import Rows
from longhmm.errors import DataError, ModelError
from longhmm.model.conjugate import Conjugate, Sums
from longhmm.model.emissions.distribution import Builder, Density, find_layout, name_of
from longhmm.model.lowering import Lowering
from longhmm.model.parameters import (
    Parameter,
    Params,
    Pending,
    brief,
    draw_prior,
    full_shape,
    log_prior_density,
    make_parameter,
    specification,
)
from longhmm.model.registry import EMISSIONS, accepted
from longhmm.model.summary import DataSummary, Sample, Suit
from longhmm.model.support import check_values, feasible, inside_support
from longhmm.model.tree import Named, Tree

if TYPE_CHECKING:
    from longhmm.data.sequences import Sequences


@EMISSIONS.register("distribution")
class Emission(Tree):
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

    support: Constraint = constraints.real
    lags = 0  # rows before each that `log_likelihoods` sees
    couples = False  # whether `log_likelihoods` depends on the state before a row too
    has_full_covariance = False  # whether the parameters are `mean (K, D)` and `covariance (K, D, D)` of a Gaussian
    derived = ("_tables",)
    _density: Density | None

    def __init__(self, distribution: Builder | None, *, dim: int = 1, **priors: Any) -> None:
        specs = {name: specification(name, prior) for name, prior in priors.items()}
        self._describe(dim, specs, vector=dim > 1)
        if distribution is not None:
            self._density = Density.find(distribution, specs, self._dim)
            self._vector, self.support = self._density.vector, self._density.support
        elif not self._has_own("log_density", "log_likelihoods"):
            raise ModelError(
                "An emission without a distribution must override log_density, or log_likelihoods: pass a NumPyro "
                "distribution, or write a subclass."
            )

    def _describe(self, dim: int, specs: dict[str, Any], *, vector: bool) -> None:
        if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
            raise ModelError(f"dim must be a positive integer (the number of features), but it was {dim!r}.")
        self._dim, self._specs, self._vector = int(dim), Named(specs), vector
        self._density = None

    def _has_own(self, *methods: str) -> bool:
        """Whether one of these methods is not that of this class."""
        return any(getattr(type(self), each) is not getattr(Emission, each) for each in methods)

    # -- description ---------------------------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """Number of features D."""
        return self._dim

    @property
    def name(self) -> str:
        """What messages call this emission."""
        density = self._density if type(self) is Emission else None
        return type(self).__name__ if density is None else name_of(density.builder)

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

    @property
    def free_names(self) -> list[str]:
        """The names of the parameters that are inferred."""
        return [name for name, spec in self._specs.items() if isinstance(spec, Distribution | Pending)]

    @property
    def specifications(self) -> dict[str, Distribution | np.ndarray | Pending]:
        """What is known of every parameter beforehand: its prior, its fixed value, or only its region."""
        return self._specs

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
            tails, integers = self._tails(n_states), self._density.integers if self._density else ()
            tables[n_states] = {
                name: make_parameter(name, spec, n_states, tails[name], integer=name in integers)
                for name, spec in self._specs.items()
            }
        return tables[n_states]

    def _tails(self, n_states: int) -> dict[str, tuple[int, ...]]:
        """The shape of one state's value of every parameter."""
        if self._density is not None:
            return find_layout(self._density.builder, self._specs, self._dim, n_states)[0]
        tails = {}
        for name, spec in self._specs.items():
            shape = full_shape(spec)
            events = tuple(spec.event_shape) if isinstance(spec, Distribution) else ()
            tails[name] = events or (shape[1:] if shape and shape[0] == n_states else shape)
        return tails

    def axes(self, name: str, n_states: int) -> tuple[str, ...]:
        """Names of the axes of a parameter, for labels: states first, then features and the like."""
        tail = self.parameters(n_states)[name].shape[1:]
        if tail in ((self._dim,), (self._dim, self._dim)):
            return ("state", "feature", "with_feature")[: 1 + len(tail)]
        return ("state", *(f"{name}_{index}" for index in range(len(tail))))

    def states_differ(self, n_states: int) -> bool:
        """Whether priors or fixed values differ between states, so that states must not be relabelled."""
        shapes = zip(self.parameters(n_states).values(), map(full_shape, self._specs.values()), strict=True)
        return any(len(shape) == len(parameter.shape) and shape[0] > 1 for parameter, shape in shapes)

    def options(self) -> dict[str, Any]:
        """The arguments, other than priors and fixed values, that rebuild this emission."""
        given = {"distribution": self._density.builder} if type(self) is Emission and self._density else {}
        return given if self._dim == 1 else {**given, "dim": self._dim}

    def __repr__(self) -> str:
        parts = [self.name] if type(self) is Emission else []
        options = {name: value for name, value in self.options().items() if (name, value) != ("dim", 1)}
        parts += [f"{name}={value!r}" for name, value in options.items() if not callable(value)]
        parts += [f"{name}={brief(spec)}" for name, spec in self._specs.items() if not isinstance(spec, Pending)]
        return f"{type(self).__name__}({', '.join(parts)})"

    # -- the data ------------------------------------------------------------------------------------------------

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
    def suits(cls, sample: Sample) -> Suit | None:
        """Whether the data look like this family."""
        return None

    def resolve(self, summary: DataSummary) -> Emission:
        """The same emission with default priors scaled to the data; explicit priors are left alone."""
        return self

    def check_dim(self, dim: int) -> None:
        """Refuse data with another number of features."""
        if dim != self._dim:
            raise DataError(
                f"The data have {dim} feature(s), but the {self.name} emission has dim={self._dim}: choose the "
                f"columns to use, or build the emission with dim={dim}."
            )

    def check(self, values: np.ndarray, observed: np.ndarray, describe: Callable[[int], str]) -> None:
        """Raise a DataError that names the first observed value, of (n, D), outside the support."""
        self.check_dim(values.shape[1])
        by_state = self._density is not None and self._density.by_state
        inside = inside_support(self.support, np.where(observed, values, 0), by_state=by_state, vector=self._vector)
        check_values(values, observed, inside, self.support, self.name, describe)

    def fill(self, dtype: Any) -> jax.Array:
        """`(D,)`, a value inside the support (of the first state where states differ), to stand for a missing one."""
        support = self.support
        if self._density is not None and self._density.by_state:
            support = jax.tree.map(lambda bound: bound[0] if np.ndim(bound) else bound, support)
        return feasible(support, (self._dim,)).astype(dtype)

    # -- densities and draws -------------------------------------------------------------------------------------

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """log p(y | x = k), shape (..., K), for fully observed y of shape (..., D), or (...,) if scalar-valued.

        Of an emission that overrides `log_likelihoods` alone: of rows without rows before them.
        """
        if self._density is not None:
            return self._density.log_density(params, y)
        values = y if self.vector_valued else y[..., None]
        before = jnp.full((*values.shape[:-1], self.lags, self._dim), jnp.nan) if self.lags else None
        return self.log_likelihoods(params, Rows(values, jnp.ones(values.shape, bool), None, before))

    def log_likelihoods(self, params: Params, rows: Rows) -> jax.Array:
        """`log p(y_t | x_t = k)`, `(..., K)`, of rows that may be missing; to be overridden by emissions that see lags
        or covariates, or (with `couples`) return `(..., K, K)` given the states before and at the row.

        A missing value contributes likelihood 1. A partly missing row is marginalised where features are independent
        or jointly Gaussian, and otherwise counts as missing.
        """
        y, observed = jnp.asarray(rows.values), jnp.asarray(rows.observed)
        # Missing values are filled first: a `where` after the density alone would leave NaN in its gradient.
        if self._dim > 1 and self._density is not None:
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
        n_states = jnp.shape(params[self.names[0]])[0] if self._specs else 1
        table = self.parameters(n_states)
        logs = (log_prior_density(table[name], jnp.asarray(params[name])) for name in self.free_names)
        return sum(logs, jnp.zeros(()))

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        """`P(y_d < value | x = k)` and `P(y_d <= value | x = k)`, each `(n, K, D)`, for values `(n, D)`.

        The two differ for discrete observations only. None where no closed form is known.
        """
        return None if self._density is None else self._density.cdf(params, values)

    def cdf_of_rows(self, params: Params, rows: Rows) -> tuple[jax.Array, jax.Array] | None:
        """`cdf` of rows; to be overridden by emissions that see lags or covariates, and None for the former if not."""
        return None if self.lags or self.couples else self.cdf(params, jnp.asarray(rows.values))

    def means(self, params: Params) -> jax.Array:
        """Each state's mean, `loc` where it does not exist; `(K, D)`, or `(K, 1)` for the first feature alone."""
        names = [name for name in ("loc", "mean") if name in self._specs] or self.names
        fallback = jnp.asarray(params[names[0]])
        fallback = fallback.reshape(fallback.shape[0], -1)
        mean = None if self._density is None else self._density.means(params)
        fallback = fallback if fallback.shape[1] == self._dim else fallback[:, :1]
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

    def sample_after(self, key: jax.Array, params: Params, states: jax.Array, lags: Any, covariates: Any) -> jax.Array:
        """Observations (n, D) given states (n,), rows before them (n, p, D) and covariates (n, C), None where there are
        none; to be overridden by emissions that see them."""
        return self.sample(key, params, states)

    def sample_prior(self, key: jax.Array, n_states: int) -> dict[str, Any]:
        """One draw of every parameter from its prior; fixed parameters have their values."""
        table = self.parameters(n_states)
        keys = jax.random.split(key, max(len(table), 1))
        return {name: draw_prior(one, parameter) for one, (name, parameter) in zip(keys, table.items(), strict=False)}

    # -- exponential families: log p(y | k) = eta_k . s(y) - a_k + log h(y) ---------------------------------------

    @property
    def is_exponential_family(self) -> bool:
        return self._has_own("sufficient_statistics")

    def sufficient_statistics(self, y: jax.Array) -> jax.Array | None:
        """s(y), shape (..., n_stats), or None if the emission is no exponential family."""
        return None

    def natural_parameters(self, params: Params) -> tuple[jax.Array, jax.Array] | None:
        """(eta (K, n_stats), a (K,)), or None if the emission is no exponential family."""
        return None

    def log_base_measure(self, y: jax.Array) -> jax.Array:
        """log h(y), shape (...,)."""
        return jnp.zeros(jnp.shape(y)[: -1 if self.vector_valued else None], jnp.result_type(y, jnp.float32))

    def centre(self, params: Params) -> Any:
        """`(D,)`, what is subtracted from observations before statistics are summed, so that sums keep their digits."""
        return np.zeros(self._dim)

    def recentred(self, params: Params, centre: Any) -> dict[str, Any]:
        """Parameters of the distribution of `y - centre`."""
        return dict(params)

    # -- what makes it fast, and its updates in closed form (None: there is none) -----------------------------------

    @property
    def lowering(self) -> Lowering | None:
        """How rows and parameters reach the fused kernels; None where log likelihoods are computed beforehand."""
        return None

    def conjugate(self, n_levels: int, centre: Any) -> Conjugate | None:
        """How parameters follow from sums over rows `y - centre`."""
        return None

    def mode(self, n_levels: int, sums: Sums, *, start: Params | None, prior: bool) -> dict[str, np.ndarray] | None:
        """The most probable parameters given expected statistics (without the prior's share where not `prior`).

        `start` are parameters to begin with where a few rounds are needed.
        """
        return None

    def fit(self, groups: list[np.ndarray]) -> dict[str, np.ndarray] | None:
        """The most probable parameters given the rows `(n, D)` of every level."""
        return None
