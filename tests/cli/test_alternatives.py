"""Models that a comparison ranks: by number of states, noise, baseline and dwell times, with names that say so."""

from longhmm.cli.alternatives import alternatives


def build(n, *, noise, drift, durations):
    return n, noise, drift, durations


def test_every_combination_has_a_name():
    found = alternatives([1, 2], ["none", "ar:2"], [0, 9], None, build)
    assert found == {
        "1 state": (1, None, None, None),
        "1 state, drift 9": (1, None, 9, None),
        "1 state, ar:2": (1, "ar:2", None, None),
        "1 state, ar:2, drift 9": (1, "ar:2", 9, None),
        "2 states": (2, None, None, None),
        "2 states, drift 9": (2, None, 9, None),
        "2 states, ar:2": (2, "ar:2", None, None),
        "2 states, ar:2, drift 9": (2, "ar:2", 9, None),
    }


def test_without_options_only_numbers_of_states_differ():
    assert alternatives([3], None, None, None, build) == {"3 states": (3, None, None, None)}


def test_dwell_times_are_those_of_several_states():
    found = alternatives([1, 2], None, None, ["geometric", "gamma:30"], build)
    assert found == {
        "1 state": (1, None, None, None),
        "2 states": (2, None, None, None),
        "2 states, gamma:30": (2, None, None, "gamma:30"),
    }
