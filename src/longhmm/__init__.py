"""Bayesian hidden Markov models for sequences too long for everything else.

Names are resolved when they are first used, so that importing longhmm costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "longhmm.data.sequences": ("Sequences", "open_data"),
    "longhmm.errors": ("DataError", "ImpossibleObservationError", "LongHMMError", "ModelError"),
    "longhmm.gradients.api": ("constrain", "gradient", "log_prior", "unconstrain"),
    "longhmm.gradients.buffer_length": ("FixedBuffer", "LyapunovBuffer"),
    "longhmm.gradients.certificate": ("Certificate", "certificate"),
    "longhmm.gradients.estimators": (
        "IID",
        "Buffered",
        "ControlVariate",
        "FullData",
        "stationary_start",
        "uniform_start",
    ),
    "longhmm.gradients.schemes": ("Windows",),
    "longhmm.kernels.answers": ("decode", "log_likelihood", "sample_states", "state_probabilities"),
    "longhmm.model.emissions": ("Emission",),
    "longhmm.model.families": (
        "Bernoulli",
        "Categorical",
        "Gamma",
        "Gaussian",
        "GaussianMixture",
        "LogNormal",
        "NegativeBinomial",
        "Poisson",
        "StudentT",
        "Tied",
        "VonMises",
    ),
    "longhmm.model.hmm": ("HMM",),
    "longhmm.model.initialise": ("initial_params",),
    "longhmm.model.simulate": ("simulate",),
    "longhmm.model.transitions": ("Sticky",),
    "longhmm.samplers.expectation_maximisation": ("fit_em",),
}
_MODULES = ("datasets", "testing")
_PUBLIC = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [*sorted(_PUBLIC), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        found = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = found
        return found
    if name in _MODULES:
        return importlib.import_module(f"longhmm.{name}")
    raise AttributeError(f"module 'longhmm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from longhmm import datasets as datasets
    from longhmm import testing as testing
    from longhmm.data.sequences import Sequences as Sequences
