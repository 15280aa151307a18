"""Schemes, channels and levels in words, and which of them a comparison of real recordings prefers."""

import json
import re

import numpy as np
import pytest

import longhmm as lh
from cli.calls import call, sentence
from longhmm.cli.options import build_model
from longhmm.cli.schemes import chain, chains
from longhmm.errors import ModelError


def test_every_scheme_has_every_number_of_channels():
    found = chains([], ["C <-> O", "C1 <-> C2 <-> O"], ["1..2", "3:free"], None, None, 1000.0)
    assert [(each.name, each.n_states, each.levels, each.equal) for each in found] == [
        ("1 channel, C <-> O", 2, (0, 1), True),
        ("2 channels, C <-> O", 3, (0, 1, 2), True),
        ("3 channels, C <-> O, free levels", 4, (0, 1, 2, 3), False),
        ("1 channel, C1 <-> C2 <-> O", 3, (0, 0, 1), True),
        ("2 channels, C1 <-> C2 <-> O", 6, (0, 0, 0, 1, 1, 2), True),
        ("3 channels, C1 <-> C2 <-> O, free levels", 10, (0, 0, 0, 0, 1, 1, 1, 2, 2, 3), False),
    ]
    assert all(float(each.transitions.dt[0]) == 1e-3 for each in found)


def test_levels_go_with_the_schemes_of_their_size():
    found = chains([3], ["1 <-> 2", "1 <-> 2 <-> 3"], None, ["0,0,1", "0, 1, 1"], None, 1.0)
    assert [(each.name, each.levels) for each in found] == [
        ("3 states, levels 0 0 1", (0, 0, 1)),
        ("3 states, levels 0 1 1", (0, 1, 1)),
        ("1 <-> 2", None),
        ("1 <-> 2 <-> 3, levels 0 0 1", (0, 0, 1)),
        ("1 <-> 2 <-> 3, levels 0 1 1", (0, 1, 1)),
    ]


def test_levels_of_a_channel_say_in_which_states_it_is_open():
    (found,) = chains([], ["C <-> O1 <-> O2"], ["2"], ["0,1,1"], None, 1.0)
    assert found.transitions.open_states == ("O1", "O2")
    assert found.levels == (0, 1, 1, 2, 2, 2)
    assert found.name == "2 channels, C <-> O1 <-> O2, levels 0 1 1"


def test_one_model_for_a_fit():
    assert chain(2, None, None, None, "~ temp", None).transitions == "~ temp"
    assert chain(3, "1 <-> 2 <-> 3", None, "0,0,1", None, 1.0).levels == (0, 0, 1)
    assert chain(None, "C <-> O", "3", None, None, 1.0).n_states == 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((2, None, "3", None), "--channels needs the --scheme of one channel"),
        ((3, "C <-> O", None, None), "--states must be left out beside --scheme, or be that of C <-> O, 2; got 3"),
        ((None, "C <-> O", "1..3", None), "--channels must be one number such as 3 here"),
        ((None, "C <-> O", "current", None), "--channels must be a range such as 1..5 .* got 'current'"),
        ((None, "C <-> O", "0", None), "--channels must be a range"),
        ((None, "C <-> O", None, "0,0,1"), "--levels must have an entry for each state, .* for '0,0,1'"),
        ((None, "C <-> O", None, "0,2"), "--levels must be one whole number for each state, from 0 without gaps"),
        ((None, "C <-> O", None, "0,-1"), "--levels must be one whole number"),
        ((None, "C <-> O", None, ""), "--levels must be one whole number"),
        ((None, "C <-> S <-> O", "2", "0,1,2"), "--levels of a channel must be 0 where it is closed"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(given, said):
    with pytest.raises(ModelError, match=said):
        chain(*given, None, 1.0)


def test_the_command_line_says_so_in_one_sentence(tmp_path):
    np.save(tmp_path / "y.npy", np.random.default_rng(0).normal(size=200))
    for command in ("fit", "compare"):  # before the file is looked for
        said = re.sub(r"[^\w.,'-]+", " ", call(command, tmp_path / "none.npy", code=2))
        assert "'--states' must be given, such as --states 2" in said
    words = ("compare", tmp_path / "y.npy", "--scheme", "C <-> O", "--channels", "1..2", "--out", tmp_path / "runs")
    assert "--scheme needs the number of samples per second" in sentence(*words)
    said = sentence(*words, "--rate", 10, "--emission", "student-t")
    assert "--emission must not be given where channels add equal currents" in said


def test_sequences_may_differ_in_brightness():
    data = lh.open_data([np.random.default_rng(seed).normal(5, 1, size=50) for seed in range(3)])
    how = dict(priors=[], stay=None, brightness=True)
    assert repr(build_model("student-t", 2, data, **how).emission) == "Brightness(StudentT())"
    assert repr(build_model("gaussian", 3, data, levels=(0, 0, 1), **how).emission).startswith("Brightness(Tied(Gau")
    with pytest.raises(ModelError, match="without formulas or drift"):
        build_model("gaussian", 2, data, drift=3, **how)
    with pytest.raises(ModelError, match=r"--held-out must be 0 with --brightness.* got 0.2"):
        build_model("gaussian", 2, data, held_out=0.2, **how)


def test_fit_is_told_of_brightness(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(9.0))
    words = ("fit", tmp_path / "y.npy", "--states", 2, "--out", tmp_path / "run", "--brightness", "--held-out", 0.2)
    assert "--held-out must be 0 with --brightness" in sentence(*words)


@pytest.mark.slow
def test_the_number_of_channels_is_found(tmp_path):
    moves = lh.Channels(2, "C <-> O", dt=1e-3)
    model = lh.HMM(moves.n_states, lh.EquallySpaced(moves.levels), transitions=moves)
    truth = {"rates": [40.0, 60.0], "base": [0.0], "step": [1.0], "sd": [0.3, 0.3, 0.3], "initial": [0.3, 0.5, 0.2]}
    np.save(tmp_path / "y.npy", lh.simulate(model, truth, 6000, seed=1)[1])
    words = ("--rate", 1000, "--scheme", "C <-> O", "--channels", "1..3", "--chains", 2, "--draws", 50)
    printed = json.loads(
        call("compare", tmp_path / "y.npy", *words, "--held-out", 0.3, "--out", tmp_path / "c", "--json")
    )
    scores = {row["model"]: row["difference"] for row in printed["models"]}
    assert scores["1 channel, C <-> O"] < -100  # two levels cannot hold three
    assert scores["2 channels, C <-> O"] == max(scores.values())
    folders = [run["run"].rpartition("/")[2] for run in printed["runs"]]
    assert folders == ["1-channel-C-O", "2-channels-C-O", "3-channels-C-O"]
