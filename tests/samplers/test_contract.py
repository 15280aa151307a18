"""Every registered sampler keeps the contract, and each part of the contract can fail."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.samplers import SAMPLERS
from longhmm.testing import check_sampler

# What these need beside their defaults: steps that suit a tiny model, and no long adaptation.
SETTINGS = {
    "SGLD": {"step_size": 1e-4},
    "NUTS": {"step_size": 0.3, "inverse_mass": 0.01 * np.eye(4), "max_tree_depth": 3},
    "HMC": {"step_size": 0.3, "inverse_mass": 0.01 * np.eye(4), "leapfrogs": 3},
}
BY_HAND = {"BatchRLD", "ExpectationMaximisation"}  # one pass over streamed data per step
WITHOUT_CHANCE = {"ExpectationMaximisation", "StochasticVariational"}  # given the minibatch
STEPPED = ("BatchRLD", "HMC", "SGHMC", "SGLD", "SGRLD")  # the user gives them a step size


REGISTERED = sorted(each for each, module in SAMPLERS.modules().items() if module.startswith("longhmm."))


def make(name):
    return SAMPLERS.find(name)(**SETTINGS.get(name, {}))


@pytest.mark.parametrize("name", REGISTERED)
def test_the_contract_is_kept(name):
    assert make(name) == make(name) and hash(make(name)) == hash(make(name))
    check_sampler(make(name), chance=name not in WITHOUT_CHANCE)
    tiny = lh.open_data(np.arange(30) % 7)
    model = lh.HMM(2, lh.Poisson()).resolve(tiny)
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 5.0]}
    target = make(name).estimator(None, lh.FixedBuffer(2)).bind(model, tiny, params)
    assert target.compiled == (name not in BY_HAND | {"ControlVariateSGLD"})  # which is not tuned yet


@pytest.mark.parametrize("name", REGISTERED)
def test_docstring_has_equations_example_and_reference(name):
    text = SAMPLERS.find(name).__doc__
    assert "' = " in text or "' ~ " in text
    assert name not in STEPPED or "step_size" in text
    for part in ("Example:", "Reference", "iffer"):
        assert part in text, part
