"""Bayesian hidden Markov models for sequences too long for everything else.

Names are resolved when first used; families of emissions and samplers that register themselves are `lh.ItsName`.
"""

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longhmm.version import __version__ as __version__

if TYPE_CHECKING:
    from longhmm import datasets as datasets
    from longhmm import errors as errors
    from longhmm import samplers as samplers
    from longhmm import testing as testing
    from longhmm.backends.answers import decode as decode
    from longhmm.backends.answers import log_likelihood as log_likelihood
    from longhmm.backends.answers import sample_states as sample_states
    from longhmm.backends.answers import state_probabilities as state_probabilities
    from longhmm.data.fret import fret as fret
    from longhmm.data.movement import steps_and_angles as steps_and_angles
    from longhmm.data.sequences import open_data as open_data
    from longhmm.model.drift import Drift as Drift
    from longhmm.model.emissions import Emission as Emission
    from longhmm.model.emissions.tied import Tied as Tied
    from longhmm.model.hmm import HMM as HMM
    from longhmm.model.noise import ARNoise as ARNoise
    from longhmm.model.noise import MANoise as MANoise
    from longhmm.model.noise import StepResponse as StepResponse
    from longhmm.model.regression import Regression as Regression
    from longhmm.model.simulate import simulate as simulate
    from longhmm.model.transitions.dirichlet import Sticky as Sticky
    from longhmm.posterior.compare import compare as compare
    from longhmm.posterior.posterior import Posterior as Posterior
    from longhmm.posterior.posterior import load as load
    from longhmm.references import citation as citation
    from longhmm.report import plots as plots
    from longhmm.run.cluster import on_cluster as on_cluster
    from longhmm.run.sample import sample as sample
    from longhmm.samplers.expectation_maximisation import fit_em as fit_em
    from longhmm.target import buffered as estimators  # noqa: F401
    from longhmm.target.buffer_length import FixedBuffer as FixedBuffer
    from longhmm.target.buffer_length import LyapunovBuffer as LyapunovBuffer
    from longhmm.target.buffer_report import buffer_report as buffer_report
    from longhmm.target.buffered import Buffered as Buffered
    from longhmm.target.coordinates import constrain as constrain
    from longhmm.target.coordinates import log_prior as log_prior
    from longhmm.target.coordinates import unconstrain as unconstrain
    from longhmm.target.systematic import Importance as Importance
    from longhmm.target.systematic import Windows as Windows
    from longhmm.target.target import gradient as gradient

_MODULES = {name: f"longhmm.{name}" for name in ("datasets", "errors", "samplers", "testing")}
_MODULES |= {"estimators": "longhmm.target.buffered", "plots": "longhmm.report.plots"}
# What type checkers see above is what there is, and where.
_SEEN = re.findall(r"^    from (longhmm\.\S+) import (\w+) as", Path(__file__).read_text(encoding="utf-8"), re.M)
_PUBLIC = {name: module for module, name in _SEEN if f"{module}.{name}" not in _MODULES.values()}
__all__ = [*sorted(_PUBLIC), *_MODULES]


def _registries() -> tuple[Any, ...]:
    from longhmm.model.registry import EMISSIONS, TRANSITIONS
    from longhmm.samplers import SAMPLERS

    return EMISSIONS, TRANSITIONS, SAMPLERS


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _PUBLIC:
        return globals().setdefault(name, getattr(importlib.import_module(_PUBLIC[name]), name))
    for registry in () if name.startswith("_") else _registries():
        if found := registry.find(name):
            return found
    raise AttributeError(f"module 'longhmm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for each in _registries() for name in each.modules()), "__version__"})
