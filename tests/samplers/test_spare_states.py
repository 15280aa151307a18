"""States to spare are found, and states that are rare or close, but there, are not taken for such."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.samplers import spare_states
from longhmm.samplers.mode import find_mode

STAY = [[0.95, 0.05], [0.1, 0.9]]


def note_on(model, data):
    sequences = open_data(data)
    model = model.resolve(sequences)
    mode = find_mode(model, sequences)
    return " ".join(spare_states.notes_on(model, (mode.coordinates, mode.information), sequences))


def two_levels(length=4000, gap=3.0):
    model = lh.HMM(2, lh.Gaussian())
    params = {"transition": STAY, "mean": [0.0, gap], "sd": [1.0, 1.0]}
    return lh.simulate(model, params, length, seed=3)[1]


@pytest.mark.slow
@pytest.mark.parametrize("n_states", [3, 4])
def test_states_that_nothing_asks_for_are_named_with_the_remedy(n_states):
    found = note_on(lh.HMM(n_states, lh.Gaussian(), transition_prior=lh.Sticky(5.0, 1.0)), two_levels())
    assert found.startswith("too many states: states ") and "cannot be told apart" in found
    assert "and 2 states describe the data as well" in found and "fit lh.HMM(2, ...)" in found
    assert f"longhmm compare FILE --states 1..{n_states}" in found


def test_one_state_is_enough_for_white_noise():
    found = note_on(lh.HMM(2, lh.Gaussian()), np.random.default_rng(1).normal(size=2000))
    assert "states 0 and 1 cannot be told apart, and 1 state describes the data as well" in found


@pytest.mark.slow
def test_a_rare_state_and_states_that_overlap_are_not_spared():
    rare = [[0.999, 0.001, 0.0], [0.0005, 0.9985, 0.001], [0.02, 0.02, 0.96]]
    params = {"transition": rare, "mean": [0.0, 3.0, 7.0], "sd": [1.0, 1.0, 1.0]}
    values = lh.simulate(lh.HMM(3, lh.Gaussian()), params, 20_000, seed=1)[1]
    assert note_on(lh.HMM(3, lh.Gaussian()), values) == ""
    assert note_on(lh.HMM(2, lh.Gaussian()), two_levels(20_000, gap=1.0)) == ""


def test_fewer_states_are_judged_by_their_likelihood():
    """Where emissions are close but dwell times tell the states apart, the search for fewer says no."""
    model, sequences = lh.HMM(2, lh.Gaussian()), open_data(two_levels(20_000, gap=0.8))
    model = model.resolve(sequences)
    mode = find_mode(model, sequences)
    assert spare_states.enough_states(model, mode.coordinates, sequences) is None


@pytest.mark.slow
def test_states_that_differ_a_priori_or_share_levels_are_left_alone():
    sequences = open_data(two_levels(1000))
    tied = lh.HMM(3, lh.Tied(lh.Gaussian(), levels=(0, 1, 1))).resolve(sequences)
    prior = lh.HMM(3, lh.Gaussian(), transition_prior=[[5, 1, 1], [1, 9, 1], [1, 1, 2]]).resolve(sequences)
    for model in (tied, prior):
        mode = find_mode(model, sequences)
        assert spare_states.overlapping(model, mode.coordinates, mode.information) is None


def test_the_smaller_model_keeps_all_but_the_number():
    model = lh.HMM(3, lh.Poisson(), transition_prior=lh.Sticky(7.0, 2.0), initial="stationary")
    fewer = spare_states.with_states(model, 2)
    assert fewer.n_states == 2 and fewer.initial == "stationary" and fewer.emission is model.emission
    np.testing.assert_array_equal(fewer.transitions.concentration, [[7.0, 2.0], [2.0, 7.0]])
