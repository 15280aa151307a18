"""Gradient to the next state; one algorithm per file, one contract."""

# Samplers that run on any bound estimator, by name, and where they live; the contract test inspects every one.
REGISTERED = {
    "BatchRLD": "longhmm.samplers.batch_rld",
    "SGHMC": "longhmm.samplers.sghmc",
    "SGLD": "longhmm.samplers.sgld",
    "SGRLD": "longhmm.samplers.sgrld",
}
