"""A NumPyro distribution as the density of an emission. Which layout of parameters over states and features makes one
distribution per state over D features is found by tracing (no arithmetic is done), and priors that cannot work are
refused with a sentence before any data are read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, Independent, MultivariateNormal, biject_to, constraints
from numpyro.distributions.constraints import Constraint, is_dependent
from numpyro.distributions.distribution import validation_enabled

from longhmm.errors import ModelError
from longhmm.model.covariance import marginal_log_density
from longhmm.model.parameters import Parameter, Params, Pending, Tree, full_shape, make_parameter
from longhmm.model.support import in_words, same_support, settle

Builder = Callable[..., Distribution]
Specs = Mapping[str, Any]  # priors and fixed values by name
_INTEGER_INTERVAL = type(constraints.integer_interval(0, 1))


@dataclass(frozen=True)
class Density(Tree):
    """A distribution of D features for every state."""

    builder: Builder  # a NumPyro class, or a function of named parameters that returns a distribution
    names: tuple[str, ...]
    integers: tuple[str, ...]  # those that must be integers
    dim: int
    vector: bool  # whether the distribution itself is multivariate; else its features are independent
    support: Constraint  # of the observations
    by_state: bool = False  # whether the bounds of the support have a leading axis of states

    @staticmethod
    def find(builder: Builder, specs: Specs, dim: int) -> Density:
        """Check what a user gave, and find out what the distribution makes of it."""
        _check_names(builder, specs)
        n_states, table, vector = _fitting_table(builder, specs, dim)
        batch_dims = 2 if dim > 1 and not vector else 1
        support = settle(_check_distribution(builder, table), n_states, batch_dims)
        return Density(builder, tuple(specs), _integers(builder, specs), dim, vector, *support)

    def build(self, params: Params) -> Distribution:
        """The distribution at these parameters."""
        return _build(self.builder, {name: params[name] for name in self.names}, self.integers)

    def log_density(self, params: Params, y: jax.Array) -> jax.Array:
        """log p(y | x = k), shape (..., K), for y of shape (..., D), or (...,) where D is 1 and not `vector`."""
        values = self._features(params, y)
        return jnp.sum(values, -1) if self.dim > 1 and not self.vector else values

    def _features(self, params: Params, y: jax.Array) -> jax.Array:
        """Log densities with a state axis, and with a features axis after it where features are independent."""
        distribution, y = self.build(params), jnp.asarray(y)
        values = y[..., None, :] if self.vector or self.dim > 1 else y[..., None]
        if isinstance(self.support, _INTEGER_INTERVAL):
            values = values.astype(jnp.int32)  # categories index a table, and missing ones are filled by now
        elif not jnp.issubdtype(values.dtype, jnp.inexact):
            values = values.astype(jnp.result_type(*(params[name] for name in self.names), jnp.float32))
        if not self.by_state:
            return distribution.log_prob(values)
        # A value that only other states can produce must not reach this state's density: its gradient may be NaN.
        inside = self.support(values)
        bounds = np.broadcast_shapes(*(np.shape(bound) for bound in jax.tree.leaves(self.support)))
        safe = self.support.feasible_like(jnp.zeros((*bounds, self.dim) if self.vector else bounds, values.dtype))
        logs = distribution.log_prob(jnp.where(inside[..., None] if self.vector else inside, values, safe))
        return jnp.where(inside, logs, -jnp.inf)

    def partly_observed(self, params: Params, filled: jax.Array, observed: jax.Array) -> jax.Array | None:
        """log p(observed part of y | x = k) of several features; None where parts cannot be integrated out. `filled` is
        y with a value inside the support where it is missing."""
        if not self.vector:
            return jnp.sum(jnp.where(observed[..., None, :], self._features(params, filled), 0), -1)
        distribution = self.build(params)
        if isinstance(distribution, Independent) and distribution.base_dist.event_dim == 0:
            values = distribution.base_dist.log_prob(filled[..., None, :])
            return jnp.sum(jnp.where(observed[..., None, :], values, 0), -1)
        if isinstance(distribution, MultivariateNormal):
            return marginal_log_density(distribution.loc, distribution.covariance_matrix, filled, observed)
        return None

    def sample(self, key: jax.Array, params: Params, states: jax.Array) -> jax.Array:
        """Observations (n, D) given states (n,)."""
        draws = self.build({name: jnp.asarray(params[name])[states] for name in self.names}).sample(key)
        return draws if draws.ndim == 2 else draws[:, None]

    def means(self, params: Params) -> jax.Array | None:
        """`(K, D)`, not finite where a mean does not exist; None where NumPyro does not know it."""
        try:
            mean = self.build(params).mean
        except (NotImplementedError, AttributeError):
            return None
        return mean.reshape(mean.shape[0], -1)

    def cdf(self, params: Params, values: jax.Array) -> tuple[jax.Array, jax.Array] | None:
        """See `Emission.cdf`; where features are independent and NumPyro has the function."""
        if self.vector:
            return None
        at, shape = values[:, None, :] if self.dim > 1 else values, (values.shape[0], -1, self.dim)
        try:
            distribution = self.build(params)
            upper = distribution.cdf(at).reshape(shape)
        except (NotImplementedError, AttributeError, ImportError, TypeError):
            return None
        discrete = self.support.is_discrete
        return upper - jnp.exp(distribution.log_prob(at)).reshape(shape) if discrete else upper, upper


def name_of(builder: Builder) -> str:
    """What messages call the distribution."""
    return getattr(builder, "__name__", type(builder).__name__)


def find_layout(builder: Builder, specs: Specs, dim: int, n_states: int) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Shapes of one state's values, and whether the distribution is multivariate: the first layout under which it has
    one batch entry per state and D features."""
    base = {name: _event_tail(builder, name, spec, dim, n_states) for name, spec in specs.items()}
    candidates = [base]
    if dim > 1:  # features in front, unless a constant has them already
        owned = {n for n, tail in base.items() if not isinstance(specs[n], Distribution) and tail[:1] == (dim,)}
        in_front = {name: tail if name in owned else (dim, *tail) for name, tail in base.items()}
        candidates = [in_front, {name: tail or (dim,) for name, tail in base.items()}, base]
    seen = []
    for tails in candidates:
        try:
            batch, event = _trace_shapes(builder, specs, tails, n_states)
        except Exception as error:  # any refusal by the distribution rules this layout out
            seen.append(str(error).splitlines()[0] if str(error) else type(error).__name__)
            continue
        if event == (dim,) and batch == (n_states,):
            return tails, True
        if event == () and batch == ((n_states,) if dim == 1 else (n_states, dim)):
            return tails, False
        seen.append(f"batch shape {batch} and event shape {event}")
    raise ModelError(
        f"{name_of(builder)} does not give one distribution over {dim} feature(s) per state with these "
        f"parameters (got {seen[0]}): check the shapes of the priors and fixed values."
    )


def _fitting_table(builder: Builder, specs: Specs, dim: int) -> tuple[int, dict[str, Parameter], bool]:
    """A number of states at which the specifications fit together, and the parameters there."""
    # One that per-state specifications may imply; the last is arbitrary and equals no other size.
    sizes = [full_shape(spec) for spec in specs.values()]
    events = [_event_dim(builder, name, spec) for name, spec in specs.items()]
    candidates = [shape[0] for shape, n in zip(sizes, events, strict=True) if len(shape) > n and shape[0] > 1]
    refusal, whole = None, _integers(builder, specs)
    for n_states in [*candidates, max((size for shape in sizes for size in shape), default=dim) + dim + 1]:
        try:
            tails, vector = find_layout(builder, specs, dim, n_states)
            table = {n: make_parameter(n, spec, n_states, tails[n], integer=n in whole) for n, spec in specs.items()}
            return n_states, table, vector
        except ModelError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _is_class(builder: Builder) -> bool:
    return inspect.isclass(builder) and issubclass(builder, Distribution)


def _check_names(builder: Builder, given: Specs) -> None:
    """Refuse unknown parameter names and report missing ones, before anything is built."""
    signature = inspect.signature(builder).parameters
    named = {name: p for name, p in signature.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    named.pop("validate_args", None)
    unknown = [name for name in given if name not in named]
    if unknown and not any(p.kind == p.VAR_KEYWORD for p in signature.values()):
        raise ModelError(f"{name_of(builder)} has no parameter '{unknown[0]}': its parameters are {', '.join(named)}.")
    # A class has defaults such as a scale of 1, which nobody chose; a function of the user's has the user's.
    needed = getattr(builder, "arg_constraints", {}) if _is_class(builder) else {}
    forgotten = {name for name, p in named.items() if name in needed and p.default is not None}
    missing = [name for name, p in named.items() if name not in given and (p.default is p.empty or name in forgotten)]
    if missing:
        said = f"The parameter '{missing[0]}' of {name_of(builder)} is missing"
        raise ModelError(f"{said}: give it a prior or a fixed value by keyword.")


def _event_dim(builder: Builder, name: str, spec: Any) -> int:
    """Dimensions of one value, as far as the class or the prior says."""
    own = spec.event_dim if isinstance(spec, Distribution) else 0
    if not _is_class(builder):
        return own
    constraint = builder.arg_constraints.get(name)  # type: ignore[attr-defined]
    try:
        return constraint.event_dim if constraint is not None else 0
    except NotImplementedError:
        return own


def _event_tail(builder: Builder, name: str, spec: Any, dim: int, n_states: int) -> tuple[int, ...]:
    """The event shape of one state's value: from the specification where it has one, else (D,) or (D, D)."""
    shape = full_shape(spec)
    if _is_class(builder):
        event_dim = _event_dim(builder, name, spec)
        tail = shape[len(shape) - event_dim :] if len(shape) >= event_dim else ()
        return np.broadcast_shapes(tail, (1,) * event_dim) if tail and max(tail) > 1 else (dim,) * event_dim
    if isinstance(spec, Distribution):
        return tuple(spec.event_shape)
    # A function does not say how many dimensions a constant has: a leading size K means one per state.
    return shape[1:] if shape and shape[0] == n_states else shape


def _integers(builder: Builder, specs: Specs) -> tuple[str, ...]:
    """Names of the constants that must stay integers: the class says so, or a function was given them as such."""

    def is_integer(name: str, spec: Any) -> bool:
        if spec is None or isinstance(spec, Distribution | Pending):
            return False
        if not _is_class(builder):
            return spec.dtype.kind in "iu"
        constraint = builder.arg_constraints.get(name)  # type: ignore[attr-defined]
        return constraint is not None and not is_dependent(constraint) and constraint.is_discrete

    return tuple(name for name, spec in specs.items() if is_integer(name, spec))


def _build(builder: Builder, params: Params, integers: tuple[str, ...]) -> Distribution:
    """The distribution at these parameter values, batched as they are."""
    values = {name: jnp.asarray(value) for name, value in params.items()}
    values = {name: value.astype(int) if name in integers else value for name, value in values.items()}
    if _is_class(builder) or getattr(builder, "__module__", "").startswith("numpyro."):
        # NumPyro's own checks would cost a pass over the data, and refuse float32 rounding of valid matrices.
        return builder(**values, validate_args=False)
    return builder(**values)


def _trace_shapes(builder: Builder, specs: Specs, tails: Specs, n_states: int) -> tuple[tuple[int, ...], ...]:
    """Batch and event shape."""
    found: list[tuple[tuple[int, ...], ...]] = []

    def trace(values: Params) -> None:
        distribution = _build(builder, values, _integers(builder, specs))
        found.append((tuple(distribution.batch_shape), tuple(distribution.event_shape)))

    jax.eval_shape(trace, {name: jax.ShapeDtypeStruct((n_states, *tail), np.float32) for name, tail in tails.items()})
    return found[0]


def check_inside(parameter: Parameter, required: Constraint, owner: str) -> None:
    """Refuse a prior or a constant that can leave the region that the distribution needs."""
    for sign in (1.0, -1.0):
        value = _trial(parameter, sign)
        with jax.enable_x64(True):
            inside = bool(np.all(np.asarray(required(jnp.asarray(value)))))
        if not inside:
            raise _outside(parameter, required, owner, value)


def _check_distribution(builder: Builder, table: Mapping[str, Parameter]) -> Constraint:
    """Try the distribution at two far points; return its support, which must be the same at both."""
    one, other = ({name: _trial(parameter, sign) for name, parameter in table.items()} for sign in (1.0, -1.0))
    whole = _integers(builder, {name: parameter.value for name, parameter in table.items()})

    def made(values: Params) -> Distribution:
        try:
            with validation_enabled(False):  # the checks here speak of priors and states, NumPyro's do not
                return _build(builder, values, whole)
        except Exception as error:
            raise ModelError(f"{name_of(builder)} cannot be built from these parameters: {error}") from error

    with jax.enable_x64(True):
        for point in (one, other):
            _check_arguments(builder, made(point), table, point)
        support = made(one).support
        for name, parameter in table.items() if not same_support(support, made(other).support) else ():
            if parameter.is_free and not same_support(support, made({**one, name: other[name]}).support):
                raise ModelError(
                    f"The parameter '{name}' of {name_of(builder)} moves the support of the distribution, so it "
                    f"cannot be inferred by gradients: give '{name}' a fixed value instead of a prior."
                )
        return support


def _trial(parameter: Parameter, sign: float) -> np.ndarray:
    """The fixed value, or one inside the support, far from its centre on both sides; two signs give two of them."""
    if parameter.value is not None:
        return parameter.value
    assert parameter.support is not None
    try:
        way = biject_to(parameter.support)
    except NotImplementedError:
        raise ModelError(
            f"The prior of '{parameter.name}' lives on {in_words(parameter.support)}, which has no "
            "unconstrained coordinates: use a continuous prior, or a fixed value."
        ) from None
    shape = way.inverse_shape(parameter.shape)
    size = int(np.prod(shape, dtype=int))
    noise = sign * np.random.default_rng(0).uniform(0.5, 2.0, size) * np.where(np.arange(size) % 2 == 0, -1.0, 1.0)
    with jax.enable_x64(True):
        return np.asarray(way(jnp.asarray(noise.reshape(shape))))


def _check_arguments(builder: Builder, made: Distribution, table: Mapping[str, Parameter], point: Params) -> None:
    """Every argument that the built distribution stores must satisfy its own constraint."""
    for name, required in made.arg_constraints.items():
        value, own = vars(made).get(name), table.get(name) if _is_class(builder) else None
        if value is None or is_dependent(required) or (own is not None and own.support is required):
            continue
        if bool(np.all(np.asarray(required(jnp.asarray(value))))):
            continue
        if own is not None:
            raise _outside(own, required, name_of(builder), point[name])
        raise ModelError(
            f"{name_of(builder)} returned a {type(made).__name__} whose '{name}' left {in_words(required)} "
            "for some values that its priors allow: give its parameters priors on the right region."
        )


def _outside(parameter: Parameter, required: Constraint, owner: str, value: np.ndarray) -> ModelError:
    what = "fixed value" if parameter.value is not None else f"{type(parameter.prior).__name__} prior"
    return ModelError(
        f"The parameter '{parameter.name}' of {owner} needs {in_words(required)}, but its {what} allows values "
        f"such as {float(np.ravel(value)[0]):.3g}: choose one that stays inside."
    )
