"""Priors that cannot work are refused with a sentence before any data are read."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution
from numpyro.distributions.constraints import Constraint, is_dependent
from numpyro.distributions.distribution import validation_enabled

from longhmm.errors import ModelError
from longhmm.model.layout import Builder, build, is_class, name_of
from longhmm.model.parameter import Parameter, Params, trial_value
from longhmm.model.support import in_words, same_support


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
    specs = {name: parameter.value for name, parameter in parameters.items()}
    try:
        with validation_enabled(False):  # the checks here speak of priors and states, NumPyro's do not
            return build(builder, values, specs)
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
