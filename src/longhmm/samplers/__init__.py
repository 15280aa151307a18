"""Gradient to the next state; one algorithm per file, one contract.

Names are resolved when they are first used: `lh.samplers.BatchRLD`.
"""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)

# Every sampler by name, and where it lives; the contract test inspects every one.
REGISTERED = {
    "BatchRLD": "longhmm.samplers.sgrld",
    "ExpectationMaximisation": "longhmm.samplers.expectation_maximisation",
    "Gibbs": "longhmm.samplers.gibbs",
    "HMC": "longhmm.samplers.full_data_hmc",
    "ControlVariateSGLD": "longhmm.samplers.control_variate_sgld",
    "NUTS": "longhmm.samplers.full_data_hmc",
    "SGHMC": "longhmm.samplers.sgld",
    "SGLD": "longhmm.samplers.sgld",
    "SGRLD": "longhmm.samplers.sgrld",
    "StochasticVariational": "longhmm.samplers.stochastic_variational",
}
# What samplers may be given: schedules of step sizes, and dynamics of transitions.
OPTIONS = {
    **dict.fromkeys(("Constant", "PolynomialDecay"), "longhmm.samplers.schedules"),
    **dict.fromkeys(("CoxIngersollRoss", "Mirror"), "longhmm.samplers.langevin_moves"),
}
# What the command line calls those that need no tuning by hand; `register` adds others.
NAMES = {"sgld-cv": "ControlVariateSGLD", "nuts": "NUTS", "hmc": "HMC", "gibbs": "Gibbs", "sgrld": "SGRLD"}
AUTO = "auto"
_own: dict[str, Any] = {}


def register(name: str) -> Callable[[Class], Class]:
    """Make a sampler of one's own known under this name, to the command line and as `lh.ItsName`."""

    def under_name(sampler: Class) -> Class:
        REGISTERED[sampler.__name__], NAMES[name] = sampler.__module__, sampler.__name__
        _own[sampler.__name__] = sampler
        return sampler

    return under_name


def names() -> list[str]:
    """What a user may write instead of a sampler."""
    return [AUTO, *NAMES]


def from_name(name: Any) -> Any:
    """The sampler that a user means who gives its name, as it comes: None for the one that suits the data."""
    return __getattr__(NAMES[name])() if name in NAMES else None if name == AUTO else name


def __getattr__(name: str) -> Any:
    if name in _own:
        return _own[name]
    where = (REGISTERED | OPTIONS).get(name)
    if where is None:
        raise AttributeError(f"module 'longhmm.samplers' has no attribute {name!r}")
    return getattr(importlib.import_module(where), name)
