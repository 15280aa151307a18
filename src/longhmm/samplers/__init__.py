"""Gradient to the next state; one algorithm per file, one contract.

Names are resolved when they are first used: `lh.samplers.BatchRLD`.
"""

import importlib
from typing import Any

# Every sampler by name, and where it lives; the contract test inspects every one.
REGISTERED = {
    "BatchRLD": "longhmm.samplers.batch_rld",
    "ExpectationMaximisation": "longhmm.samplers.expectation_maximisation",
    "Gibbs": "longhmm.samplers.gibbs",
    "HMC": "longhmm.samplers.full_data_hmc",
    "ControlVariateSGLD": "longhmm.samplers.control_variate_sgld",
    "NUTS": "longhmm.samplers.full_data_hmc",
    "SGHMC": "longhmm.samplers.sghmc",
    "SGLD": "longhmm.samplers.sgld",
    "SGRLD": "longhmm.samplers.sgrld",
    "StochasticVariational": "longhmm.samplers.stochastic_variational",
}
# What samplers may be given: schedules of step sizes, and dynamics of transitions.
OPTIONS = {
    **dict.fromkeys(("Constant", "PolynomialDecay"), "longhmm.samplers.schedules"),
    **dict.fromkeys(("CoxIngersollRoss", "Mirror"), "longhmm.samplers.expanded_mean"),
}


def __getattr__(name: str) -> Any:
    where = (REGISTERED | OPTIONS).get(name)
    if where is None:
        raise AttributeError(f"module 'longhmm.samplers' has no attribute {name!r}")
    return getattr(importlib.import_module(where), name)
