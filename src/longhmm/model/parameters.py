"""Named parameters, stacked over states: shape, prior or fixed value, region, and unconstrained coordinates (NumPyro's
bijection to the support of the prior); and descriptions that hold them, as trees for compiled code."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, ExpandedDistribution, Independent, biject_to, constraints
from numpyro.distributions.constraints import Constraint

from longhmm.errors import ModelError
from longhmm.model.covariance import CovarianceBijection, is_covariance
from longhmm.model.support import Turn, bare

Params = Mapping[str, Any]
NUMBERS = "_names_of_numbers"


class Tree:
    """A class whose instances, and those of its subclasses, are trees: numbers are leaves, all else is structure. A
    program is compiled for a structure, so that one serves every data set of the same shape. Leaves are the arrays that
    an instance holds, and the numbers of the priors, constraints and other trees that it holds; other attributes must
    have an equality. Those named in `derived`, and cached properties, are made anew when they are needed."""

    derived: ClassVar[tuple[str, ...]] = ()
    made_anew: ClassVar[frozenset[str]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cached = {name for each in cls.__mro__ for name, own in vars(each).items() if isinstance(own, cached_property)}
        cls.made_anew = frozenset({NUMBERS, *cls.derived, *cached})
        jax.tree_util.register_pytree_node(cls, lambda each: each.tree_flatten(), cls.tree_unflatten)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """For JAX: what holds numbers, and the structure around it."""
        parts = {name: value for name, value in vars(self).items() if name not in self.made_anew}
        # JAX sometimes puts other things in the place of numbers: what was one is remembered.
        known = vars(self).get(NUMBERS)
        names = known or tuple(name for name, value in parts.items() if isinstance(value, HOLD_NUMBERS))
        structure = tuple((name, value) for name, value in parts.items() if name not in names)
        return tuple(map(_in_order, (parts[name] for name in names))), (names, structure)

    @classmethod
    def tree_unflatten(cls, structure: Any, numbers: tuple[Any, ...]) -> Self:
        """Inverse of `tree_flatten`, with any numbers."""
        names, rest = structure
        made = object.__new__(cls)
        vars(made).update(**dict(zip(names, numbers, strict=True)), **dict(rest), **{NUMBERS: names})
        return made


class Named(dict[Any, Any], Tree):
    """Priors, fixed values and the like by name, in the order in which they were given (which JAX loses elsewhere)."""

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return tuple(map(_in_order, self.values())), tuple(self)

    @classmethod
    def tree_unflatten(cls, structure: Any, numbers: tuple[Any, ...]) -> Self:
        return cls(zip(structure, numbers, strict=True))


@dataclass
class Prior:
    """A distribution as a tree whose numbers come in the order of their names. NumPyro's own order is that of a set,
    another one in every process: no program that takes a prior would be found again on disk."""

    distribution: Distribution

    def tree_flatten(self) -> tuple[tuple[dict[str, Any]], Any]:
        kind, own = type(self.distribution), vars(self.distribution)
        numbers, rest = _fields(kind)
        return ({name: _in_order(own.get(name)) for name in numbers},), (kind, tuple(map(own.get, rest)))

    @staticmethod
    def tree_unflatten(structure: Any, numbers: tuple[dict[str, Any]]) -> Distribution:
        return structure[0].tree_unflatten(structure[1], tuple(map(numbers[0].get, _fields(structure[0])[0])))


_fields: Any = cache(lambda kind: (kind.gather_pytree_data_fields(), kind.gather_pytree_aux_fields()))
jax.tree_util.register_pytree_node(Prior, Prior.tree_flatten, Prior.tree_unflatten)


def _in_order(part: Any) -> Any:
    usual = isinstance(part, Distribution) and type(part).tree_flatten is Distribution.tree_flatten
    return Prior(part) if usual else part  # others say themselves what their numbers are


HOLD_NUMBERS = (Tree, Constraint, Distribution, np.ndarray, jax.Array)


class Parameter(NamedTuple):
    """A parameter stacked over states. `prior` is None for a fixed value, and also for a default prior that still waits
    for the data; `value` is None for every free parameter, which has coordinates `biject_to(support)`."""

    name: str
    shape: tuple[int, ...]
    prior: Distribution | None
    value: Any  # an array, or None
    support: Constraint | None

    @property
    def is_free(self) -> bool:
        """Whether the parameter is inferred, that is, has unconstrained coordinates."""
        return self.value is None

    @property
    def bijection(self) -> Any:
        """From the real numbers to the support: NumPyro's, but for small covariance matrices."""
        matrices = isinstance(bare(self.support), type(constraints.positive_definite))
        return CovarianceBijection() if matrices else biject_to(self.support)


Parameters = Mapping[str, Parameter]


class Pending(NamedTuple):
    """Stands for a default prior that the data have not scaled yet; only the region is known."""

    support: Constraint


Specification = Any  # a prior (Distribution), a fixed value (array), or Pending


def specification(name: str, given: Any) -> Specification:
    """What a user gave for a parameter: its prior, or its fixed value."""
    if isinstance(given, Distribution):
        # NumPy's arrays, unlike JAX's, take the precision of where they are used: one prior serves windows and modes.
        return jax.tree.map(partial(_with_floats, np.float64), given)
    if isinstance(given, type):
        raise ModelError(
            f"The prior of '{name}' must be a distribution such as Normal(0, 1), but it was the class {given.__name__}."
        )
    array = np.asarray(given)
    if array.dtype.kind not in "iuf":
        raise ModelError(
            f"The parameter '{name}' must be a NumPyro distribution (its prior), a number or an array (a fixed value), "
            f"but it was {given!r}."
        )
    return array


def _with_floats(dtype: Any, leaf: Any) -> Any:
    """A copy of an array; what is no array, or traced in compiled code, as it is."""
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    return np.array(leaf, dtype if np.issubdtype(leaf.dtype, np.floating) else None)


def full_shape(spec: Specification) -> tuple[int, ...]:
    """The shape of one draw of a prior, or of a constant; () where only the region is known."""
    if isinstance(spec, Distribution):
        return tuple(spec.batch_shape) + tuple(spec.event_shape)
    return () if isinstance(spec, Pending) else tuple(spec.shape)


def brief(spec: Specification) -> str:
    """A prior or fixed value in a word."""
    if isinstance(spec, Pending):
        return "scaled to the data"
    if isinstance(spec, Distribution):
        while isinstance(spec, Independent | ExpandedDistribution):
            spec = spec.base_dist
        numbers = [np.asarray(getattr(spec, name, np.nan)) for name in spec.arg_constraints]
        shown = [f"{each.item():.4g}" if each.size == 1 else f"{each.round(4).tolist()}" for each in numbers]
        known = numbers and all(each.ndim < 2 and each.size < 9 and np.isfinite(each).all() for each in numbers)
        return type(spec).__name__ + (f"({', '.join(shown)})" if known else "")
    return f"{spec.item():g}" if spec.ndim == 0 else str(spec.tolist()) if spec.size <= 8 else f"array{spec.shape}"


def make_parameter(
    name: str, spec: Specification, n_states: int, tail: tuple[int, ...], *, integer: bool = False
) -> Parameter:
    """Stack one specification over states, or refuse a shape that does not fit (K, *tail)."""
    shape, given = (n_states, *tail), full_shape(spec)
    try:
        fits = np.broadcast_shapes(given, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        kind = "prior" if isinstance(spec, Distribution) else "fixed value"
        raise ModelError(
            f"The {kind} of '{name}' has shape {given}, which does not fit {n_states} states with values of shape "
            f"{tail}: give one for all states, or one per state with leading size {n_states}."
        )
    if isinstance(spec, Distribution):
        support = Turn(-np.pi) if spec.support is constraints.circular else spec.support
        return Parameter(name, shape, spec, None, support)
    if isinstance(spec, Pending):
        return Parameter(name, shape, None, None, spec.support)
    if isinstance(spec, jax.Array):  # inside compiled code
        return Parameter(name, shape, None, jnp.broadcast_to(spec, shape), None)
    return Parameter(name, shape, None, np.broadcast_to(spec, shape).astype(np.int64 if integer else np.float64), None)


def prior_of(parameter: Parameter) -> Distribution:
    """A copy in the precision of the current scope, without what NumPyro or JAX may have cached for another one."""
    if parameter.prior is None:
        raise ModelError(
            f"The default prior of '{parameter.name}' depends on the data: resolve the model on the data first, or "
            f"give the prior of '{parameter.name}' explicitly."
        )
    return jax.tree.map(partial(_with_floats, jnp.result_type(float)), parameter.prior)


def draw_prior(key: jax.Array, parameter: Parameter) -> jax.Array:
    """One draw of the prior, shape (K, *tail); a fixed parameter returns its value."""
    if parameter.value is not None:
        return jnp.asarray(parameter.value)
    prior = prior_of(parameter)
    try:
        return prior.expand(parameter.shape[: len(parameter.shape) - prior.event_dim]).sample(key)
    except NotImplementedError:
        raise ModelError(
            f"The prior of '{parameter.name}' is a {type(prior).__name__}, which cannot be drawn from: give "
            f"'{parameter.name}' a proper prior, or start from chosen values."
        ) from None


def check_parameter(parameter: Parameter, given: Any, support: bool = True) -> np.ndarray:
    """A parameter's value as an array of its full shape, within its `support`; fixed ones take their constant."""
    if parameter.value is not None:
        return np.asarray(parameter.value)
    try:
        value = np.asarray(_shaped(parameter, given), dtype=np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"params['{parameter.name}'] must be an array of numbers, got {given!r}.") from None
    if not support:
        return value
    assert parameter.support is not None
    within = is_covariance if parameter.support is constraints.positive_definite else parameter.support
    with jax.enable_x64(True):  # of an array of NumPy's, NumPyro checks without a program for every step
        inside = np.isfinite(value).all() and np.all(within(value))
    if not inside:
        raise ModelError(
            f"params['{parameter.name}'] must lie in the support of its prior ({parameter.support}), got "
            f"{np.array2string(value, threshold=12, precision=4)}."
        )
    return value


def _shaped(parameter: Parameter, given: Any) -> Any:
    """The value of a parameter, or a refusal where there is none or its shape does not fit."""
    if given is None:
        raise ModelError(f"params must hold '{parameter.name}', an array of shape {parameter.shape}, got none.")
    if np.shape(given) != parameter.shape:
        raise ModelError(
            f"params['{parameter.name}'] must have shape {parameter.shape}, states first, got shape {np.shape(given)}."
        )
    return given


def free_names(parameters: Parameters) -> list[str]:
    """The names that have coordinates, in the order of the table."""
    return [name for name, parameter in parameters.items() if parameter.is_free]


def coordinate_shapes(parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """The shape of every free parameter's unconstrained coordinates."""
    return {name: tuple(each.bijection.inverse_shape(each.shape)) for name, each in parameters.items() if each.is_free}


def unconstrain(parameters: Parameters, params: Params) -> dict[str, jax.Array]:
    """Unconstrained coordinates of the free parameters; fixed ones have none."""
    found = {name: jnp.asarray(_shaped(parameters[name], params.get(name))) for name in free_names(parameters)}
    return {
        name: parameters[name].bijection.inv(each if jnp.issubdtype(each.dtype, jnp.inexact) else each.astype(float))
        for name, each in found.items()
    }


def constrain(parameters: Parameters, u: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Natural parameters at the coordinates `u`, the fixed ones included."""
    names = free_names(parameters)
    dtype = jnp.result_type(*(u[name] for name in names)) if names else jnp.result_type(float)
    return {
        name: parameter.bijection(u[name])
        if parameter.is_free
        else jnp.asarray(parameter.value, dtype if parameter.value.dtype.kind == "f" else None)
        for name, parameter in parameters.items()
    }


def log_abs_det_jacobian(parameters: Parameters, u: Mapping[str, jax.Array]) -> jax.Array:
    """log |d params / d u|, summed over the free parameters. A log density of natural values becomes one of coordinates
    by adding this number."""
    ways = {name: parameters[name].bijection for name in free_names(parameters)}
    logs = (jnp.sum(way.log_abs_det_jacobian(u[name], way(u[name]))) for name, way in ways.items())
    return sum(logs, jnp.zeros(()))
