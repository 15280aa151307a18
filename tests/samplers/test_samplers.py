"""Which samplers there are."""

import pytest

import longhmm as lh
from longhmm.run import sample as pipeline
from longhmm.samplers import SAMPLERS

REGISTERED = sorted(each for each, module in SAMPLERS.modules().items() if module.startswith("longhmm."))


def test_all_ten_samplers_are_known():
    assert len(REGISTERED) == 10 and {"BatchRLD", "ControlVariateSGLD", "StochasticVariational"} <= set(REGISTERED)


PARAMS = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}


@pytest.fixture
def counts(monkeypatch):
    monkeypatch.setattr("longhmm.run.run.GRADIENTS", 1e9)  # windows, however short the data
    return lh.simulate(lh.HMM(2, lh.Poisson()), PARAMS, length=1000, seed=1)[1]


@pytest.mark.parametrize(("name", "automatic"), [("gibbs", False), ("auto", True), ("sgld-cv", False)])
def test_samplers_have_names(counts, name, automatic):
    request = pipeline.requested(lh.HMM(2, lh.Poisson()), counts, sampler=name)
    assert type(request.sampler).__name__ == {"gibbs": "Gibbs"}.get(name, "ControlVariateSGLD")
    assert request.automatic is automatic
