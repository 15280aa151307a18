"""How the named parameters of any NumPyro distribution are laid out over states and features.

A class declares how many event dimensions each parameter has; a function does not, so its priors tell. Which of the
possible layouts makes one distribution per state over D features is then found by tracing (no arithmetic is done).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution
from numpyro.distributions.constraints import is_dependent

from longhmm.errors import ModelError
from longhmm.model.parameter import Params, full_shape, make_parameter

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


def build(builder: Builder, params: Params, specs: Mapping[str, Any]) -> Distribution:
    """The distribution at these parameter values, batched as they are."""
    values = {name: jnp.asarray(params[name]) for name in specs}
    values = {
        name: value.astype(int) if wants_integer(builder, name, specs[name]) else value
        for name, value in values.items()
    }
    if is_class(builder) or getattr(builder, "__module__", "").startswith("numpyro."):
        # NumPyro's own checks would cost a pass over the data, and refuse float32 rounding of valid matrices.
        return builder(**values, validate_args=False)
    return builder(**values)


def _trace_shapes(
    builder: Builder, specs: Specs, tails: Mapping[str, tuple[int, ...]], n_states: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def trace(values: Params) -> None:
        distribution = build(builder, values, specs)
        found.append((tuple(distribution.batch_shape), tuple(distribution.event_shape)))

    jax.eval_shape(trace, {name: jax.ShapeDtypeStruct((n_states, *tail), np.float32) for name, tail in tails.items()})
    return found[0]


def wants_integer(builder: Builder | None, name: str, spec: Any) -> bool:
    """Whether a constant must stay an integer: the class says so, or it was given as one to a function."""
    if builder is None or not isinstance(spec, np.ndarray):
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
    if isinstance(spec, np.ndarray) and tail and tail[0] == dim:
        return tail
    return (dim, *tail)
