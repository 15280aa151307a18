"""Models as plain names and numbers, and back; nothing but allow-listed names is ever called."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from longhmm.errors import ModelError
from longhmm.model.conjugate import RootInverseGamma
from longhmm.model.emissions import Emission
from longhmm.model.emissions.distribution import name_of
from longhmm.model.emissions.gaussian_mixture import OrderedNormal
from longhmm.model.hmm import HMM
from longhmm.model.parameters import Pending
from longhmm.model.registry import EMISSIONS, TRANSITIONS, Registry, accepted
from longhmm.model.support import bare, same_support
from longhmm.model.transitions import TransitionModel

# The arguments that rebuild each prior; every one is an attribute of the same name.
PRIORS: dict[str, tuple[str, ...]] = {
    name: tuple(getattr(dist, name).arg_constraints)
    for name in (
        *("Beta", "Cauchy", "Chi2", "Dirichlet", "Exponential", "Gamma", "Gumbel", "HalfCauchy", "HalfNormal"),
        *("InverseGamma", "Laplace", "LogNormal", "LogUniform", "Logistic", "Normal", "Pareto", "StudentT", "Uniform"),
        *("VonMises", "Weibull"),
    )
}
PRIORS |= {"RootInverseGamma": PRIORS["InverseGamma"], "OrderedNormal": ("loc", "scale", "size")}
PRIORS |= dict.fromkeys(("InverseWishart", "Wishart"), ("concentration", "scale_tril"))
PRIORS |= dict.fromkeys(("LKJ", "LKJCholesky"), ("dimension", "concentration"))
PRIORS |= {"MultivariateNormal": ("loc", "scale_tril")}
OWN_PRIORS = {"OrderedNormal": OrderedNormal, "RootInverseGamma": RootInverseGamma}
PRIOR_CLASSES: dict[str, Any] = {name: OWN_PRIORS.get(name) or getattr(dist, name) for name in PRIORS}
# Truncated priors hold another prior and their bounds.
TRUNCATED: dict[str, tuple[str, ...]] = {
    "LeftTruncatedDistribution": ("low",),
    "RightTruncatedDistribution": ("high",),
    "TwoSidedTruncatedDistribution": ("low", "high"),
}
REGIONS = (
    *("real", "positive", "nonnegative", "unit_interval", "circular", "simplex", "ordered_vector"),
    *("positive_ordered_vector", "positive_definite", "lower_cholesky", "corr_cholesky", "corr_matrix"),
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
    stored, n_states = config["transitions"], config["n_states"]
    kind = _registered(TRANSITIONS, "transitions are", stored.get("kind"))
    emission = emission_from_config(config["emission"])
    with jax.enable_x64(True):
        options = {name: _option_from_config(value) for name, value in stored.get("options", {}).items()}
        try:
            moves = kind.rebuilt(n_states, options)
        except (TypeError, KeyError, AttributeError, ValueError):
            known = ", ".join(sorted(options))
            raise ModelError(f"The stored transitions {stored['kind']!r} cannot be rebuilt from {known}.") from None
    return HMM(n_states, emission, transitions=moves, initial=config["initial"])


def stored_model(config: Mapping[str, Any], damaged: Exception) -> HMM:
    """A model from a description on disk, which may be anything; what to raise then is given."""
    try:
        return model_from_config(config)
    except ModelError:
        raise
    except Exception:
        raise damaged from None


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
    options = emission.options()
    holds_others = any(isinstance(value, Emission) for value in options.values())
    specs = {} if holds_others else accepted(type(emission), emission.specifications)
    return {
        "family": family,
        "options": {name: _option_to_config(value) for name, value in options.items()},
        "parameters": {
            name: {"prior": prior_to_config(name, spec)} if isinstance(spec, Distribution) else {"fixed": spec.tolist()}
            for name, spec in specs.items()
            if not isinstance(spec, Pending)
        },
    }


def emission_from_config(config: Mapping[str, Any]) -> Emission:
    """Rebuild an emission from its description."""
    family = _registered(EMISSIONS, "emission is a", config.get("family"))
    with jax.enable_x64(True):
        given = {name: _option_from_config(value) for name, value in config.get("options", {}).items()}
        for name, spec in config.get("parameters", {}).items():
            given[name] = prior_from_config(spec["prior"]) if "prior" in spec else np.asarray(spec["fixed"])
        try:
            return family(**given)
        except TypeError:
            known = ", ".join(sorted(given))
            raise ModelError(f"The stored emission {config['family']!r} cannot be rebuilt from {known}.") from None


def _registered(registry: Registry, what: str, name: Any) -> Any:
    classes = registry.classes()
    if not isinstance(name, str) or name not in classes:
        raise ModelError(
            f"The stored {what} {name!r}, but it must be one of {', '.join(sorted(classes))}: pass the model when "
            "loading, as load(path, model=...)."
        )
    return classes[name]


def _option_to_config(value: Any) -> Any:
    """Plain values as they are; another emission, a prior, and a distribution of NumPyro, by name."""
    if isinstance(value, Emission):
        return {"emission": emission_to_config(value)}
    if isinstance(value, Distribution):
        return {"prior": prior_to_config("an option", value)}
    if not callable(value):
        return value
    if not _is_numpyro(name_of(value), value):
        raise _own_code(name_of(value))
    return {"distribution": name_of(value)}


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
    own = (getattr(builder, "__module__", "") or "").startswith("numpyro.distributions")
    return own and not name.startswith("_") and name in dist.__all__ and getattr(dist, name, None) is builder


def prior_to_config(name: str, prior: Distribution) -> dict[str, Any]:
    """A prior as the name of its distribution and its arguments."""
    kind = type(prior).__name__
    found: dict[str, Any] | None = None
    if isinstance(prior, dist.ImproperUniform):
        own, known = bare(prior.support), [(name, getattr(constraints, name)) for name in REGIONS]
        region = next((name for name, each in known if type(each) is type(own) and same_support(each, own)), None)
        shapes = {"batch_shape": list(prior.batch_shape), "event_shape": list(prior.event_shape)}
        found = None if region is None else {"support": region, **shapes}
    elif isinstance(prior, dist.Independent):
        found = {"base": prior_to_config(name, prior.base_dist), "dims": prior.reinterpreted_batch_ndims}
    elif isinstance(prior, dist.ExpandedDistribution):
        found = {"base": prior_to_config(name, prior.base_dist), "batch_shape": list(prior.batch_shape)}
    elif kind in TRUNCATED and type(prior) is getattr(dist, kind):
        bounds = {argument: _numbers_of(prior, argument) for argument in TRUNCATED[kind]}
        found = {"base": prior_to_config(name, prior.base_dist), "args": bounds}
    elif kind in PRIORS and type(prior) is PRIOR_CLASSES[kind]:
        found = {"args": {argument: _numbers_of(prior, argument) for argument in PRIORS[kind]}}
    if found is None:
        raise ModelError(
            f"The prior of '{name}' is a {kind}, which cannot be stored as names and numbers: keep the model "
            "and pass it again when loading, as load(path, model=...)."
        )
    return {"distribution": kind, **found}


def prior_from_config(config: Mapping[str, Any]) -> Distribution:
    """Rebuild a prior from its description."""
    kind = config.get("distribution")
    if kind == "ImproperUniform" and config.get("support") in REGIONS:
        region = getattr(constraints, config["support"])
        return dist.ImproperUniform(region, tuple(config["batch_shape"]), tuple(config["event_shape"]))
    if kind == "Independent":
        return prior_from_config(config["base"]).to_event(int(config["dims"]))
    if kind == "ExpandedDistribution":
        return prior_from_config(config["base"]).expand(tuple(config["batch_shape"]))
    args = {name: np.asarray(each) if isinstance(each, list) else each for name, each in config.get("args", {}).items()}
    if kind in TRUNCATED and set(args) == set(TRUNCATED[kind]):
        return getattr(dist, kind)(prior_from_config(config["base"]), **args)
    if kind not in PRIORS or set(args) != set(PRIORS[kind]):
        raise ModelError(
            f"The stored prior {kind!r} is not one that longhmm can rebuild: pass the model when loading, "
            "as load(path, model=...)."
        )
    return PRIOR_CLASSES[kind](**args)


def _numbers_of(prior: Distribution, argument: str) -> Any:
    return prior.event_shape[0] if argument == "size" else np.asarray(getattr(prior, argument)).tolist()
