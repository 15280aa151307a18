"""Samplers, windows and buffers as plain names and numbers, and back; nothing but allow-listed names is ever called."""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass
from typing import Any

from longhmm.errors import ModelError
from longhmm.samplers import REGISTERED

CLASSES = {
    **REGISTERED,
    "Alternating": "longhmm.samplers.langevin_moves",
    "Constant": "longhmm.samplers.schedules",
    "CoxIngersollRoss": "longhmm.samplers.langevin_moves",
    "FixedBuffer": "longhmm.target.buffer_length",
    "GaussianMetric": "longhmm.samplers.langevin_moves",
    "Identity": "longhmm.samplers.preconditioning",
    "Importance": "longhmm.target.systematic",
    "InverseInformation": "longhmm.samplers.preconditioning",
    "Joint": "longhmm.samplers.sgrld",
    "LyapunovBuffer": "longhmm.target.buffer_length",
    "Mirror": "longhmm.samplers.langevin_moves",
    "PolynomialDecay": "longhmm.samplers.schedules",
    "Preconditioned": "longhmm.samplers.langevin_moves",
    "Windows": "longhmm.target.systematic",
}
FUNCTIONS = {"stationary_start": "longhmm.target.estimators", "uniform_start": "longhmm.target.estimators"}


def to_config(policy: Any) -> Any:
    """A policy as JSON values; a `ModelError` for one that is not longhmm's own."""
    if policy is None or isinstance(policy, (bool, int, float, str)):
        return policy
    if isinstance(policy, (list, tuple)):
        return [to_config(each) for each in policy]
    name = getattr(policy, "__name__", type(policy).__name__)
    if policy is _find(FUNCTIONS, name):
        return {"function": name}
    if is_dataclass(policy) and type(policy) is _find(CLASSES, name):
        return {"class": name, "with": {each.name: to_config(getattr(policy, each.name)) for each in fields(policy)}}
    raise ModelError(f"a stored policy must be one of longhmm's own, got {policy!r}.")


def from_config(config: Any) -> Any:
    """The inverse of `to_config`; lists come back as tuples."""
    if isinstance(config, list):
        return tuple(from_config(each) for each in config)
    if not isinstance(config, dict):
        return config
    if "function" in config:
        found = _find(FUNCTIONS, config["function"])
        if found is not None:
            return found
    elif isinstance(config.get("with"), dict):
        made = _find(CLASSES, config.get("class"))
        if made is not None and set(config["with"]) <= {each.name for each in fields(made)}:
            return made(**{name: from_config(value) for name, value in config["with"].items()})
    raise ModelError(f"a stored policy must have a known name and known arguments, got {config!r}.")


def _find(places: dict[str, str], name: Any) -> Any:
    return getattr(importlib.import_module(places[name]), name) if name in places else None
