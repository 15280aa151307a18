"""Models that a comparison ranks: by states, schemes, noise, baseline and dwell times, with names that say so."""

from functools import partial

import numpy as np
import pytest

from longhmm.cli.alternatives import alternatives
from longhmm.cli.options import build_model
from longhmm.cli.schemes import chains
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError

SAID = []


def build(n, *, noise, drift, durations, transitions, levels, equal):
    return n, noise, drift, durations


def ordinary(*numbers):
    return chains(numbers, None, None, None, None, None)


def test_every_combination_has_a_name():
    found = alternatives(ordinary(1, 2), ["none", "ar:2"], ["0", "9"], None, build, SAID.append)
    assert found == {
        "1 state": (1, None, None, None),
        "1 state, drift 9": (1, None, "9", None),
        "1 state, ar:2": (1, "ar:2", None, None),
        "1 state, ar:2, drift 9": (1, "ar:2", "9", None),
        "2 states": (2, None, None, None),
        "2 states, drift 9": (2, None, "9", None),
        "2 states, ar:2": (2, "ar:2", None, None),
        "2 states, ar:2, drift 9": (2, "ar:2", "9", None),
    }


def test_without_options_only_numbers_of_states_differ():
    assert alternatives(ordinary(3), None, None, None, build, SAID.append) == {"3 states": (3, None, None, None)}


def test_dwell_times_are_those_of_several_states():
    found = alternatives(ordinary(1, 2), None, None, ["geometric", "gamma:30"], build, SAID.append)
    assert found == {
        "1 state": (1, None, None, None),
        "2 states": (2, None, None, None),
        "2 states, gamma:30": (2, None, None, "gamma:30"),
    }


def test_what_cannot_be_is_left_out_and_said():
    """Noise, drift and dwell times in one comparison: states remember levels or how long they last, not both."""
    data = open_data(np.random.default_rng(0).normal(size=500))
    models, said = partial(build_model, "gaussian", data=data, priors=[], stay=None), []
    found = alternatives(ordinary(2), ["none", "ar:1"], ["0", "3"], ["geometric", "gamma:4"], models, said.append)
    drifts = ["2 states", "2 states, drift 3", "2 states, ar:1", "2 states, ar:1, drift 3"]
    assert set(found) == {*drifts, "2 states, gamma:4", "2 states, drift 3, gamma:4"}
    assert [each.partition(", since ")[0] for each in said] == [
        "Left out: 2 states, ar:1, gamma:4",
        "Left out: 2 states, ar:1, drift 3, gamma:4",
    ]
    with pytest.raises(ModelError, match="emission of the present state alone"):
        alternatives(ordinary(2), ["ar:1"], None, ["gamma:4"], models, said.append)


def test_schemes_stand_beside_ordinary_chains_and_have_no_other_dwell_times():
    data = open_data(np.random.default_rng(0).normal(size=500))
    models, said = partial(build_model, "gaussian", data=data, priors=[], stay=None), []
    every = chains([2], ["1 <-> 2", "C1 <-> C2 <-> O"], None, ["0,0,1"], None, 10.0)
    found = alternatives(every, None, None, ["geometric", "gamma:4"], models, said.append)
    assert list(found) == ["2 states", "2 states, gamma:4", "1 <-> 2", "C1 <-> C2 <-> O, levels 0 0 1"]
    assert found["C1 <-> C2 <-> O, levels 0 0 1"].emission.levels == (0, 0, 1)
    assert [each.partition(", since --durations must not be given with --scheme")[0] for each in said] == [
        "Left out: 1 <-> 2, gamma:4",
        "Left out: C1 <-> C2 <-> O, levels 0 0 1, gamma:4",
    ]
    with pytest.raises(ModelError, match="--durations must be one of"):  # a slip of the pen is not left out
        alternatives(every, None, None, ["geometric", "gama"], models, said.append)


def test_channels_that_add_equal_currents_have_white_noise():
    data = open_data(np.random.default_rng(0).normal(size=500))
    models, said = partial(build_model, "gaussian", data=data, priors=[], stay=None), []
    every = chains([], ["C <-> O"], ["2", "2:free"], None, None, 10.0)
    found = alternatives(every, ["none", "ar:1"], None, None, models, said.append)
    kinds = {name: type(model.emission).__name__ for name, model in found.items()}
    assert kinds == {
        "2 channels, C <-> O": "EquallySpaced",
        "2 channels, C <-> O, free levels": "Tied",
        "2 channels, C <-> O, free levels, ar:1": "Tied",
    }
    assert [each.partition(", since ")[0] for each in said] == ["Left out: 2 channels, C <-> O, ar:1"]
    assert "--noise must not be given where channels add equal currents" in said[0]
