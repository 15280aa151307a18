"""Emissions around another: what they leave to it, and what they are around when it becomes another."""

import pickle
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.model.emissions.around import Around
from longhmm.model.serialise import model_from_config, model_to_config

LENGTHS = [30, 20]
ROWS = sum(LENGTHS)
INNER: Any = lh.Tied(lh.Gaussian(mean=dist.Normal(np.array([0.0, 5.0]), 1.0)), (0, 0, 1))
KINDS = {
    "brightness": lh.Brightness(INNER, lengths=LENGTHS),
    "drift": lh.Drifting(INNER, lh.Drift(4)),
    "formula": lh.ByFormula(INNER, {"mean": "~ x"}),
}
DATA = lh.open_data(
    np.split(np.random.default_rng(0).normal(size=ROWS), LENGTHS[:1]), covariates={"x": np.linspace(0, 1, ROWS)}
)


@pytest.mark.parametrize("name", KINDS)
def test_what_it_does_not_change_is_that_of_its_emission(name: str) -> None:
    own: Any = KINDS[name]
    assert isinstance(own, Around) and own.states_differ(3) and own.memory(3) is None
    np.testing.assert_array_equal(own.state_levels(3), [0, 0, 1])
    alone = own.untied
    assert type(alone) is type(own) and alone.emission is INNER.untied and alone.untied is alone
    assert getattr(alone, own.changes) is getattr(own, own.changes)
    assert own.beside(lh.HMM(3, INNER).transitions) is own


@pytest.mark.parametrize("name", KINDS)
def test_it_meets_data_is_stored_and_copied(name: str) -> None:
    model, data = lh.HMM(3, KINDS[name]).meet(DATA)
    model = model.resolve(data)
    assert model.emission.is_resolved and model.emission.emission.is_resolved
    for again in (model_from_config(model_to_config(model)), pickle.loads(pickle.dumps(model))):
        assert type(again.emission) is type(KINDS[name]) and model_to_config(again) == model_to_config(model)


def test_the_prior_of_levels_is_counted_once() -> None:
    """States 0 and 1 share a level: its density has a say once, not twice."""
    levels: dict[str, Any] = {"mean": np.array([0.3, 4.0]), "sd": np.array([1.0, 2.0])}
    model, data = lh.HMM(3, KINDS["brightness"]).meet(DATA)
    found = model.resolve(data).emission
    zero = np.zeros(2)
    alone = found.log_prior({**levels, "log_brightness": zero}) - found.log_prior(
        {**levels, "mean": levels["mean"] + [1.0, 0.0], "log_brightness": zero}
    )
    expected = dist.Normal(0.0, 1.0).log_prob(0.3) - dist.Normal(0.0, 1.0).log_prob(1.3)
    assert float(alone) == pytest.approx(float(expected), rel=1e-4)


def test_states_that_remember_are_those_of_its_emission() -> None:
    inner: Any = lh.Gaussian(noise=lh.ARNoise(1))
    for own in (lh.Brightness(inner, lengths=LENGTHS), lh.Drifting(inner, lh.Drift(4))):
        assert own.memory(2) == inner.memory(2) is not None
        assert repr(own.unfolded(2).emission) == repr(inner.unfolded(2))
