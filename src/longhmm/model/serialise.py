"""Models as plain names and numbers, and back; nothing but allow-listed names is ever called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError
from longhmm.model.builders import name_of
from longhmm.model.emissions.base import Emission
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Pending
from longhmm.model.priors import OrderedNormal, RootInverseGamma
from longhmm.model.registry import EMISSIONS, TRANSITIONS, accepted
from longhmm.model.support import same_support
from longhmm.model.transitions.base import TransitionModel

# The arguments that rebuild each prior; every one is an attribute of the same name.
PRIORS: dict[str, tuple[str, ...]] = {
    "Beta": ("concentration1", "concentration0"),
    "Cauchy": ("loc", "scale"),
    "Chi2": ("df",),
    "Dirichlet": ("concentration",),
    "Exponential": ("rate",),
    "Gamma": ("concentration", "rate"),
    "Gumbel": ("loc", "scale"),
    "HalfCauchy": ("scale",),
    "HalfNormal": ("scale",),
    "InverseGamma": ("concentration", "rate"),
    "InverseWishart": ("concentration", "scale_tril"),
    "LKJ": ("dimension", "concentration"),
    "LKJCholesky": ("dimension", "concentration"),
    "Laplace": ("loc", "scale"),
    "LogNormal": ("loc", "scale"),
    "LogUniform": ("low", "high"),
    "Logistic": ("loc", "scale"),
    "MultivariateNormal": ("loc", "scale_tril"),
    "Normal": ("loc", "scale"),
    "OrderedNormal": ("loc", "scale", "size"),
    "Pareto": ("scale", "alpha"),
    "RootInverseGamma": ("concentration", "rate"),
    "StudentT": ("df", "loc", "scale"),
    "Uniform": ("low", "high"),
    "VonMises": ("loc", "concentration"),
    "Weibull": ("scale", "concentration"),
    "Wishart": ("concentration", "scale_tril"),
}
OWN_PRIORS: dict[str, Callable[..., Distribution]] = {
    "OrderedNormal": OrderedNormal,
    "RootInverseGamma": RootInverseGamma,
}
# Truncated priors hold another prior and their bounds.
TRUNCATED: dict[str, tuple[str, ...]] = {
    "LeftTruncatedDistribution": ("low",),
    "RightTruncatedDistribution": ("high",),
    "TwoSidedTruncatedDistribution": ("low", "high"),
}
REGIONS = (
    "real",
    "positive",
    "nonnegative",
    "unit_interval",
    "circular",
    "simplex",
    "ordered_vector",
    "positive_ordered_vector",
    "positive_definite",
    "lower_cholesky",
    "corr_cholesky",
    "corr_matrix",
)


def model_to_config(model: HMM) -> dict[str, Any]:
    """A JSON-able description of a whole model, or a ModelError where it contains a user's own code."""
    return {
        "n_states": model.n_states,
        "emission": emission_to_config(model.emission),
        "transitions": transitions_to_config(model.transitions),
        "initial": model.initial if isinstance(model.initial, str) else np.asarray(model.initial).tolist(),
    }


def model_from_config(config: Mapping[str, Any]) -> HMM:
    """Rebuild a model from its description; only allow-listed names are ever called."""
    stored, kinds = config["transitions"], TRANSITIONS.classes()
    if stored.get("kind") not in kinds:
        raise ModelError(
            f"The stored transitions are {stored.get('kind')!r}, but they must be one of {', '.join(sorted(kinds))}: "
            "pass the model when loading, as load(path, model=...)."
        )
    emission = emission_from_config(config["emission"])
    with jax.enable_x64(True):
        options = {name: _option_from_config(value) for name, value in stored.get("options", {}).items()}
        try:
            moves = kinds[stored["kind"]].rebuilt(config["n_states"], options)
        except (TypeError, KeyError, AttributeError, ValueError):
            known = ", ".join(sorted(options))
            raise ModelError(f"The stored transitions {stored['kind']!r} cannot be rebuilt from {known}.") from None
    return HMM(config["n_states"], emission, transitions=moves, initial=config["initial"])


def transitions_to_config(moves: TransitionModel) -> dict[str, Any]:
    """A JSON-able description of transitions, or a ModelError where they contain a user's own code."""
    kind = TRANSITIONS.name_of(type(moves))
    if kind is None:
        raise _own_code(type(moves).__name__)
    return {"kind": kind, "options": {name: _option_to_config(value) for name, value in moves.options().items()}}


def emission_to_config(emission: Emission) -> dict[str, Any]:
    """A JSON-able description of an emission, or a ModelError where it contains a user's own code."""
    family = EMISSIONS.name_of(type(emission))
    if family is None:
        raise _own_code(emission.name)
    return {
        "family": family,
        "options": {name: _option_to_config(value) for name, value in emission.options().items()},
        "parameters": {
            name: _spec_to_config(name, spec)
            for name, spec in accepted(type(emission), emission.specifications).items()
            if not isinstance(spec, Pending)
        },
    }


def emission_from_config(config: Mapping[str, Any]) -> Emission:
    """Rebuild an emission from its description."""
    families = EMISSIONS.classes()
    family = config.get("family")
    if not isinstance(family, str) or family not in families:
        raise ModelError(
            f"The stored emission is a {family!r}, but it must be one of {', '.join(sorted(families))}: pass the model "
            "when loading, as load(path, model=...)."
        )
    with jax.enable_x64(True):
        options = {name: _option_from_config(value) for name, value in config.get("options", {}).items()}
        priors = {name: _spec_from_config(spec) for name, spec in config.get("parameters", {}).items()}
        try:
            return families[family](**{**options, **priors})
        except TypeError:
            known = sorted({**options, **priors})
            raise ModelError(f"The stored emission {family!r} cannot be rebuilt from {', '.join(known)}.") from None


def _option_to_config(value: Any) -> Any:
    """Plain values as they are; another emission, a prior, and a distribution of NumPyro, by name."""
    if isinstance(value, Emission):
        return {"emission": emission_to_config(value)}
    if isinstance(value, Distribution):
        return {"prior": prior_to_config("an option", value)}
    if not callable(value):
        return value
    name = name_of(value)
    if not _is_numpyro(name, value):
        raise _own_code(name)
    return {"distribution": name}


def _option_from_config(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "emission" in value:
        return emission_from_config(value["emission"])
    if "prior" in value:
        return prior_from_config(value["prior"])
    if "distribution" not in value:
        return value
    name = value["distribution"]
    builder = getattr(dist, name, None) if isinstance(name, str) else None
    if builder is None or not _is_numpyro(str(name), builder):
        raise ModelError(f"The stored emission names the distribution {name!r}, which NumPyro does not have.")
    return builder


def _own_code(name: str) -> ModelError:
    return ModelError(
        f"{name} is your own code and cannot be stored as names and numbers: keep the model and pass it again when "
        "loading, as load(path, model=...)."
    )


def _is_numpyro(name: str, builder: Callable[..., Any]) -> bool:
    """Whether this is a public distribution of NumPyro, by identity: a class, or a function such as Categorical."""
    return (
        not name.startswith("_")
        and name in dist.__all__
        and getattr(dist, name, None) is builder
        and (getattr(builder, "__module__", "") or "").startswith("numpyro.distributions")
    )


def _spec_to_config(name: str, spec: Distribution | np.ndarray) -> dict[str, Any]:
    if isinstance(spec, Distribution):
        return {"prior": prior_to_config(name, spec)}
    return {"fixed": spec.tolist()}


def _spec_from_config(config: Mapping[str, Any]) -> Any:
    return prior_from_config(config["prior"]) if "prior" in config else np.asarray(config["fixed"])


def prior_to_config(name: str, prior: Distribution) -> dict[str, Any]:
    """A prior as the name of its distribution and its arguments."""
    kind = type(prior).__name__
    if isinstance(prior, dist.ImproperUniform):
        base = prior.support.base_constraint if hasattr(prior.support, "base_constraint") else prior.support
        region = next(
            (
                region
                for region in REGIONS
                if type(getattr(constraints, region)) is type(base) and same_support(getattr(constraints, region), base)
            ),
            None,
        )
        if region is not None:
            return {
                "distribution": kind,
                "support": region,
                "batch_shape": list(prior.batch_shape),
                "event_shape": list(prior.event_shape),
            }
    elif isinstance(prior, dist.Independent):
        return {
            "distribution": kind,
            "base": prior_to_config(name, prior.base_dist),
            "dims": prior.reinterpreted_batch_ndims,
        }
    elif isinstance(prior, dist.ExpandedDistribution):
        return {
            "distribution": kind,
            "base": prior_to_config(name, prior.base_dist),
            "batch_shape": list(prior.batch_shape),
        }
    elif kind in TRUNCATED and type(prior) is getattr(dist, kind):
        return {
            "distribution": kind,
            "base": prior_to_config(name, prior.base_dist),
            "args": {argument: _number(getattr(prior, argument)) for argument in TRUNCATED[kind]},
        }
    elif kind in PRIORS and type(prior) is _prior_class(kind):
        args = {
            argument: prior.event_shape[0] if argument == "size" else _number(getattr(prior, argument))
            for argument in PRIORS[kind]
        }
        return {"distribution": kind, "args": args}
    raise ModelError(
        f"The prior of '{name}' is a {kind}, which cannot be stored as names and numbers: keep the model "
        "and pass it again when loading, as load(path, model=...)."
    )


def prior_from_config(config: Mapping[str, Any]) -> Distribution:
    """Rebuild a prior from its description."""
    kind = config.get("distribution")
    if kind == "ImproperUniform" and config.get("support") in REGIONS:
        return dist.ImproperUniform(
            getattr(constraints, config["support"]), tuple(config["batch_shape"]), tuple(config["event_shape"])
        )
    if kind == "Independent":
        return prior_from_config(config["base"]).to_event(int(config["dims"]))
    if kind == "ExpandedDistribution":
        return prior_from_config(config["base"]).expand(tuple(config["batch_shape"]))
    if kind in TRUNCATED:
        bounds = {argument: _array(config["args"][argument]) for argument in TRUNCATED[kind]}
        return getattr(dist, kind)(prior_from_config(config["base"]), **bounds)
    if kind not in PRIORS or set(config.get("args", {})) != set(PRIORS[kind]):
        raise ModelError(
            f"The stored prior {kind!r} is not one that longhmm can rebuild: pass the model when loading, "
            "as load(path, model=...)."
        )
    return _prior_class(kind)(**{name: _array(value) for name, value in config["args"].items()})


def _prior_class(kind: str) -> Callable[..., Distribution]:
    return OWN_PRIORS[kind] if kind in OWN_PRIORS else getattr(dist, kind)


def _number(value: Any) -> Any:
    return np.asarray(value).tolist()


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, list) else value
