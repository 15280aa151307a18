"""Gradient to the next state; one algorithm per file, one contract."""

# Every sampler by name, and where it lives; the contract test inspects every one.
REGISTERED = {
    "BatchRLD": "longhmm.samplers.batch_rld",
    "ExpectationMaximisation": "longhmm.samplers.expectation_maximisation",
    "Gibbs": "longhmm.samplers.gibbs",
    "HMC": "longhmm.samplers.full_data_hmc",
    "MatchedLangevin": "longhmm.samplers.matched_langevin",
    "NUTS": "longhmm.samplers.full_data_hmc",
    "SGHMC": "longhmm.samplers.sghmc",
    "SGLD": "longhmm.samplers.sgld",
    "SGRLD": "longhmm.samplers.sgrld",
    "StochasticVariational": "longhmm.samplers.stochastic_variational",
}
