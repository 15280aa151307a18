"""NumPyro distributions built from named parameters: how these are laid out over states and features, and checks.

A class declares how many event dimensions each parameter has; a function does not, so its priors tell. Which of the
possible layouts makes one distribution per state over D features is then found by tracing (no arithmetic is done).
Priors that cannot work are refused with a sentence before any data are read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution
from numpyro.distributions.constraints import Constraint, is_dependent
from numpyro.distributions.distribution import validation_enabled

from longhmm.errors import ModelError
from longhmm.model.parameters import Parameter, Params, Pending, full_shape, make_parameter, trial_value
from longhmm.model.support import in_words, same_support

Builder = Callable[..., Distribution]
Specs = Mapping[str, Distribution | np.ndarray]


class Layout(NamedTuple):
    """`tails[name]` is the shape of one state's value; `vector` says that the distribution itself is multivariate."""

    tails: dict[str, tuple[int, ...]]
    vector: bool


def is_class(builder: Builder) -> bool:
    """Whether the emission is given as a NumPyro class (rather than as a function)."""
    return inspect.isclass(builder) and issubclass(builder, Distribution)


def name_of(builder: Builder) -> str:
    """What messages call the distribution."""
    return getattr(builder, "__name__", type(builder).__name__)


def check_names(builder: Builder, given: Mapping[str, Any]) -> None:
    """Refuse unknown parameter names and report missing ones, before anything is built."""
    signature = inspect.signature(builder)
    accepted = {
        name: p
        for name, p in signature.parameters.items()
        if name != "validate_args" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    open_ended = any(p.kind == p.VAR_KEYWORD for p in signature.parameters.values())
    unknown = [name for name in given if name not in accepted]
    if unknown and not open_ended:
        raise ModelError(
            f"{name_of(builder)} has no parameter '{unknown[0]}': its parameters are {', '.join(accepted)}."
        )
    missing = [name for name, p in accepted.items() if p.default is p.empty and name not in given]
    if missing:
        raise ModelError(
            f"The parameter '{missing[0]}' of {name_of(builder)} is missing: give it a prior or a fixed "
            "value by keyword."
        )


def plausible_states(builder: Builder, specs: Specs, dim: int) -> list[int]:
    """Numbers of states that per-state specifications may imply; the last is arbitrary and equals no other size."""
    arbitrary = max((size for spec in specs.values() for size in full_shape(spec)), default=dim) + dim + 1
    candidates = []
    for name, spec in specs.items():
        shape = full_shape(spec)
        if is_class(builder):
            ndim = _event_dim(builder, name, spec)
        else:
            ndim = spec.event_dim if isinstance(spec, Distribution) else 0
        if len(shape) > ndim and shape[0] > 1:
            candidates.append(shape[0])
    return [*candidates, arbitrary]


def guess_layout(builder: Builder, specs: Specs, dim: int) -> tuple[int, Layout]:
    """A number of states at which the specifications fit together, and the layout there."""
    refusal: ModelError | None = None
    for n_states in plausible_states(builder, specs, dim):
        try:
            layout = find_layout(builder, specs, dim, n_states)
            for name, spec in specs.items():
                make_parameter(name, spec, n_states, layout.tails[name])
            return n_states, layout
        except ModelError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def find_layout(builder: Builder, specs: Specs, dim: int, n_states: int) -> Layout:
    """The first layout under which the distribution has one batch entry per state and D features."""
    base: dict[str, tuple[int, ...]] = {}
    for name, spec in specs.items():
        base[name] = _event_tail(builder, name, spec, dim, n_states)
    candidates = [base]
    if dim > 1:
        candidates = [
            {name: _with_features(specs[name], tail, dim) for name, tail in base.items()},
            {name: tail or (dim,) for name, tail in base.items()},
            base,
        ]
    seen = []
    for tails in candidates:
        try:
            batch, event = _trace_shapes(builder, specs, tails, n_states)
        except Exception as error:  # any refusal by the distribution rules this layout out
            seen.append(str(error).splitlines()[0] if str(error) else type(error).__name__)
            continue
        if event == (dim,) and batch == (n_states,):
            return Layout(tails, True)
        if event == () and batch == ((n_states,) if dim == 1 else (n_states, dim)):
            return Layout(tails, False)
        seen.append(f"batch shape {batch} and event shape {event}")
    raise ModelError(
        f"{name_of(builder)} does not give one distribution over {dim} feature(s) per state with these "
        f"parameters (got {seen[0]}): check the shapes of the priors and fixed values."
    )


def build(builder: Builder, params: Params, integers: Collection[str]) -> Distribution:
    """The distribution at these parameter values, batched as they are; `integers` names those that must be integers."""
    values = {name: jnp.asarray(value) for name, value in params.items()}
    values = {name: value.astype(int) if name in integers else value for name, value in values.items()}
    if is_class(builder) or getattr(builder, "__module__", "").startswith("numpyro."):
        # NumPyro's own checks would cost a pass over the data, and refuse float32 rounding of valid matrices.
        return builder(**values, validate_args=False)
    return builder(**values)


def _trace_shapes(
    builder: Builder, specs: Specs, tails: Mapping[str, tuple[int, ...]], n_states: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    whole = integers(builder, specs)

    def trace(values: Params) -> None:
        distribution = build(builder, values, whole)
        found.append((tuple(distribution.batch_shape), tuple(distribution.event_shape)))

    jax.eval_shape(trace, {name: jax.ShapeDtypeStruct((n_states, *tail), np.float32) for name, tail in tails.items()})
    return found[0]


def integers(builder: Builder, specs: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the constants that must stay integers."""
    return tuple(name for name, spec in specs.items() if _wants_integer(builder, name, spec))


def _wants_integer(builder: Builder, name: str, spec: Any) -> bool:
    """The class says so, or it was given as one to a function."""
    if spec is None or isinstance(spec, Distribution | Pending):
        return False
    if is_class(builder):
        constraint = builder.arg_constraints.get(name)  # type: ignore[attr-defined]
        return constraint is not None and not is_dependent(constraint) and constraint.is_discrete
    return spec.dtype.kind in "iu"


def _event_dim(builder: Builder, name: str, spec: Distribution | np.ndarray) -> int:
    constraint = builder.arg_constraints.get(name)  # type: ignore[attr-defined]
    try:
        return constraint.event_dim if constraint is not None else 0
    except NotImplementedError:
        return spec.event_dim if isinstance(spec, Distribution) else 0


def _event_tail(
    builder: Builder, name: str, spec: Distribution | np.ndarray, dim: int, n_states: int
) -> tuple[int, ...]:
    """The event shape of one state's value: from the specification where it has one, else (D,) or (D, D)."""
    shape = full_shape(spec)
    if is_class(builder):
        event_dim = _event_dim(builder, name, spec)
        tail = shape[len(shape) - event_dim :] if len(shape) >= event_dim else ()
        return np.broadcast_shapes(tail, (1,) * event_dim) if tail and max(tail) > 1 else (dim,) * event_dim
    if isinstance(spec, Distribution):
        return tuple(spec.event_shape)
    # A function does not say how many dimensions a constant has: a leading size K means one per state.
    return shape[1:] if shape and shape[0] == n_states else shape


def _with_features(spec: Distribution | np.ndarray, tail: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """The same tail with a features axis in front, unless a constant already has one."""
    if not isinstance(spec, Distribution) and tail and tail[0] == dim:
        return tail
    return (dim, *tail)


# Checks ------------------------------------------------------------------------------------------------------------


def check_inside(parameter: Parameter, required: Constraint, owner: str) -> None:
    """Refuse a prior or a constant that can leave the region that the distribution needs."""
    for sign in (1.0, -1.0):
        value = _trial(parameter, sign)
        with jax.enable_x64(True):
            inside = bool(np.all(np.asarray(required(jnp.asarray(value)))))
        if not inside:
            raise ModelError(_outside(parameter, required, owner, value))


def check_distribution(builder: Builder, parameters: Mapping[str, Parameter]) -> Constraint:
    """Try the distribution at two far points; return its support, which must be the same at both."""
    owner = name_of(builder)
    points = [{name: _trial(parameter, sign) for name, parameter in parameters.items()} for sign in (1.0, -1.0)]
    with jax.enable_x64(True):
        made = [_build(builder, point, parameters) for point in points]
        for distribution, point in zip(made, points, strict=True):
            _check_arguments(builder, distribution, parameters, point)
        if not same_support(made[0].support, made[1].support):
            for name, parameter in parameters.items():
                moved = _build(builder, {**points[0], name: points[1][name]}, parameters)
                if parameter.is_free and not same_support(made[0].support, moved.support):
                    raise ModelError(
                        f"The parameter '{name}' of {owner} moves the support of the distribution, so it cannot be "
                        f"inferred by gradients: give '{name}' a fixed value instead of a prior."
                    )
        return made[0].support


def _trial(parameter: Parameter, sign: float) -> np.ndarray:
    if parameter.value is not None:
        return parameter.value
    assert parameter.support is not None
    try:
        return trial_value(parameter.support, parameter.shape, sign)
    except NotImplementedError:
        raise ModelError(
            f"The prior of '{parameter.name}' lives on {in_words(parameter.support)}, which has no "
            "unconstrained coordinates: use a continuous prior, or a fixed value."
        ) from None


def _build(builder: Builder, values: Params, parameters: Mapping[str, Parameter]) -> Distribution:
    whole = integers(builder, {name: parameter.value for name, parameter in parameters.items()})
    try:
        with validation_enabled(False):  # the checks here speak of priors and states, NumPyro's do not
            return build(builder, values, whole)
    except Exception as error:
        raise ModelError(f"{name_of(builder)} cannot be built from these parameters: {error}") from error


def _check_arguments(
    builder: Builder, distribution: Distribution, parameters: Mapping[str, Parameter], point: Params
) -> None:
    """Every argument that the built distribution stores must satisfy its own constraint."""
    for name, required in distribution.arg_constraints.items():
        if name not in vars(distribution) or is_dependent(required):
            continue
        if is_class(builder) and name in parameters and parameters[name].support is required:
            continue
        value = vars(distribution)[name]
        if value is None or bool(np.all(np.asarray(required(jnp.asarray(value))))):
            continue
        if is_class(builder) and name in parameters:
            raise ModelError(_outside(parameters[name], required, name_of(builder), point[name]))
        raise ModelError(
            f"{name_of(builder)} returned a {type(distribution).__name__} whose '{name}' left {in_words(required)} "
            "for some values that its priors allow: give its parameters priors on the right region."
        )


def _outside(parameter: Parameter, required: Constraint, owner: str, value: np.ndarray) -> str:
    what = "fixed value" if parameter.value is not None else f"{type(parameter.prior).__name__} prior"
    return (
        f"The parameter '{parameter.name}' of {owner} needs {in_words(required)}, but its {what} allows values "
        f"such as {float(np.ravel(value)[0]):.3g}: choose one that stays inside."
    )
