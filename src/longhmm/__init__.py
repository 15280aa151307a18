"""Bayesian hidden Markov models for sequences too long for everything else.

Names are resolved when they are first used, so that importing longhmm costs nothing.
"""

from __future__ import annotations

import importlib
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
    from longhmm.data.sequences import open_data as open_data
    from longhmm.errors import LongHMMError as LongHMMError
    from longhmm.model.emissions.base import Emission as Emission
    from longhmm.model.emissions.bernoulli import Bernoulli as Bernoulli
    from longhmm.model.emissions.categorical import Categorical as Categorical
    from longhmm.model.emissions.gamma import Gamma as Gamma
    from longhmm.model.emissions.gaussian import Gaussian as Gaussian
    from longhmm.model.emissions.gaussian_mixture import GaussianMixture as GaussianMixture
    from longhmm.model.emissions.log_normal import LogNormal as LogNormal
    from longhmm.model.emissions.negative_binomial import NegativeBinomial as NegativeBinomial
    from longhmm.model.emissions.poisson import Poisson as Poisson
    from longhmm.model.emissions.student_t import StudentT as StudentT
    from longhmm.model.emissions.tied import Tied as Tied
    from longhmm.model.emissions.von_mises import VonMises as VonMises
    from longhmm.model.hmm import HMM as HMM
    from longhmm.model.simulate import simulate as simulate
    from longhmm.model.transitions import Sticky as Sticky
    from longhmm.posterior.compare import compare as compare
    from longhmm.posterior.load import load as load
    from longhmm.posterior.posterior import Posterior as Posterior
    from longhmm.posterior.sample import sample as sample
    from longhmm.references import citation as citation
    from longhmm.report import plots as plots
    from longhmm.run.cluster_passes import on_cluster as on_cluster
    from longhmm.samplers.control_variate_sgld import ControlVariateSGLD as ControlVariateSGLD
    from longhmm.samplers.expanded_mean import CoxIngersollRoss as CoxIngersollRoss
    from longhmm.samplers.expanded_mean import Mirror as Mirror
    from longhmm.samplers.expectation_maximisation import fit_em as fit_em
    from longhmm.samplers.full_data_hmc import HMC as HMC
    from longhmm.samplers.full_data_hmc import NUTS as NUTS
    from longhmm.samplers.gibbs import Gibbs as Gibbs
    from longhmm.samplers.sghmc import SGHMC as SGHMC
    from longhmm.samplers.sgld import SGLD as SGLD
    from longhmm.samplers.sgrld import SGRLD as SGRLD
    from longhmm.target.buffer_length import FixedBuffer as FixedBuffer
    from longhmm.target.buffer_length import LyapunovBuffer as LyapunovBuffer
    from longhmm.target.buffer_report import buffer_report as buffer_report
    from longhmm.target.control_variate import ControlVariate as ControlVariate
    from longhmm.target.coordinates import constrain as constrain
    from longhmm.target.coordinates import log_prior as log_prior
    from longhmm.target.coordinates import unconstrain as unconstrain
    from longhmm.target.estimators import IID as IID
    from longhmm.target.estimators import Buffered as Buffered
    from longhmm.target.estimators import FullData as FullData
    from longhmm.target.estimators import stationary_start as stationary_start
    from longhmm.target.estimators import uniform_start as uniform_start
    from longhmm.target.full_data import gradient as gradient
    from longhmm.target.systematic import Importance as Importance
    from longhmm.target.systematic import Windows as Windows

_WHERE = {
    "longhmm.references": ("citation",),
    "longhmm.data.sequences": ("open_data",),
    "longhmm.errors": ("LongHMMError",),
    "longhmm.target.coordinates": (
        "constrain",
        "log_prior",
        "unconstrain",
    ),
    "longhmm.target.full_data": ("gradient",),
    "longhmm.target.buffer_length": (
        "FixedBuffer",
        "LyapunovBuffer",
    ),
    "longhmm.target.buffer_report": ("buffer_report",),
    "longhmm.target.control_variate": ("ControlVariate",),
    "longhmm.target.estimators": (
        "Buffered",
        "FullData",
        "IID",
        "stationary_start",
        "uniform_start",
    ),
    "longhmm.target.systematic": (
        "Importance",
        "Windows",
    ),
    "longhmm.backends.answers": (
        "decode",
        "log_likelihood",
        "sample_states",
        "state_probabilities",
    ),
    "longhmm.model.emissions.base": ("Emission",),
    "longhmm.model.emissions.bernoulli": ("Bernoulli",),
    "longhmm.model.emissions.categorical": ("Categorical",),
    "longhmm.model.emissions.gamma": ("Gamma",),
    "longhmm.model.emissions.gaussian": ("Gaussian",),
    "longhmm.model.emissions.gaussian_mixture": ("GaussianMixture",),
    "longhmm.model.emissions.log_normal": ("LogNormal",),
    "longhmm.model.emissions.negative_binomial": ("NegativeBinomial",),
    "longhmm.model.emissions.poisson": ("Poisson",),
    "longhmm.model.emissions.student_t": ("StudentT",),
    "longhmm.model.emissions.tied": ("Tied",),
    "longhmm.model.emissions.von_mises": ("VonMises",),
    "longhmm.model.hmm": ("HMM",),
    "longhmm.model.simulate": ("simulate",),
    "longhmm.model.transitions": ("Sticky",),
    "longhmm.posterior.compare": ("compare",),
    "longhmm.posterior.load": ("load",),
    "longhmm.posterior.posterior": ("Posterior",),
    "longhmm.posterior.sample": ("sample",),
    "longhmm.run.cluster_passes": ("on_cluster",),
    "longhmm.samplers.expanded_mean": (
        "CoxIngersollRoss",
        "Mirror",
    ),
    "longhmm.samplers.expectation_maximisation": ("fit_em",),
    "longhmm.samplers.full_data_hmc": (
        "HMC",
        "NUTS",
    ),
    "longhmm.samplers.gibbs": ("Gibbs",),
    "longhmm.samplers.control_variate_sgld": ("ControlVariateSGLD",),
    "longhmm.samplers.sghmc": ("SGHMC",),
    "longhmm.samplers.sgld": ("SGLD",),
    "longhmm.samplers.sgrld": ("SGRLD",),
}
_MODULES = {
    "datasets": "longhmm.datasets",
    "errors": "longhmm.errors",
    "plots": "longhmm.report.plots",
    "samplers": "longhmm.samplers",
    "testing": "longhmm.testing",
}
_PUBLIC = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [*sorted(_PUBLIC), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        found = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = found
        return found
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'longhmm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
