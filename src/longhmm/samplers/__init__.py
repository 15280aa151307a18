"""Gradient to the next state; one algorithm per file, one contract.

Names are resolved when they are first used: `lh.samplers.BatchRLD`.
"""

import importlib
from typing import Any

from longhmm.model.registry import Registry

SAMPLERS = Registry("samplers")  # offered by name are those that need no tuning by hand
register = SAMPLERS.register
# What samplers may be given: schedules of step sizes, and dynamics of transitions.
OPTIONS = {
    **dict.fromkeys(("Constant", "PolynomialDecay"), "longhmm.samplers.schedules"),
    **dict.fromkeys(("CoxIngersollRoss", "Mirror"), "longhmm.samplers.langevin_moves"),
}
AUTO = "auto"


def names() -> list[str]:
    """What a user may write instead of a sampler."""
    return [AUTO, *SAMPLERS.names()]


def from_name(name: Any) -> Any:
    """The sampler that a user means who gives its name, as it comes: None for the one that suits the data."""
    return None if name == AUTO else SAMPLERS.classes()[name]() if name in SAMPLERS.names() else name


def __getattr__(name: str) -> Any:
    found = SAMPLERS.find(name) or (name in OPTIONS and getattr(importlib.import_module(OPTIONS[name]), name))
    if not found:
        raise AttributeError(f"module 'longhmm.samplers' has no attribute {name!r}")
    return found
