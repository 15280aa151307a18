"""Models that a comparison ranks: one for each number of states, kind of noise and baseline, with names that say so."""

from longhmm.cli.alternatives import alternatives


def build(n, *, noise, drift):
    return n, noise, drift


def test_every_combination_has_a_name():
    found = alternatives([1, 2], ["none", "ar:2"], [0, 9], build)
    assert found == {
        "1 state": (1, None, None),
        "1 state, drift 9": (1, None, 9),
        "1 state, ar:2": (1, "ar:2", None),
        "1 state, ar:2, drift 9": (1, "ar:2", 9),
        "2 states": (2, None, None),
        "2 states, drift 9": (2, None, 9),
        "2 states, ar:2": (2, "ar:2", None),
        "2 states, ar:2, drift 9": (2, "ar:2", 9),
    }


def test_without_options_only_numbers_of_states_differ():
    assert alternatives([3], None, None, build) == {"3 states": (3, None, None)}
