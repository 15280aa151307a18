"""The two steps of expectation maximisation: expected counts add up."""

import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm.samplers.em_steps import expect
from longhmm.target.target import StreamedPosterior

TRANSITION = np.array([[0.93, 0.07], [0.12, 0.88]])


def simulated(emission, params, length=1500, seed=1, transition=TRANSITION, **options):
    model = lh.HMM(n_states=len(transition), emission=emission, **options)
    states, y = lh.simulate(model, {**params, "transition": transition}, length, seed)
    return model.resolve(y), states, y


def test_expected_counts_add_up():
    model, _, y = simulated(lh.Poisson(), {"rate": [1.0, 6.0]}, length=[200, 300])
    data = StreamedPosterior(model, lh.open_data(y))
    params = model.validate({"transition": TRANSITION, "rate": [1.0, 6.0]})
    expected = expect(data, params, by_sums=True)
    assert expected.first.sum() == pytest.approx(2.0)
    assert expected.transitions.sum() == pytest.approx(498.0)
    assert expected.collected[:, 0].sum() == pytest.approx(500.0)
    assert expected.collected[:, 1].sum() == pytest.approx(float(sum(each.sum() for each in y)))
    assert not jax.config.jax_enable_x64
