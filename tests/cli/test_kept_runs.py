"""The runs behind a comparison are kept."""

import json
from pathlib import Path

import pytest

import longhmm as lh
from cli.calls import call, sentence
from longhmm.cli.kept_runs import _dwell, folders


def test_dwell_times_are_in_seconds_where_they_are_known_and_one_state_is_never_left():
    assert _dwell({"dwell": 12.5}) == 12.5
    assert _dwell({"dwell": 12.5, "dwell_s": 0.0125}) == "12.5 ms"
    assert _dwell({"dwell": float("inf"), "dwell_s": float("inf")}) == "never left"


def test_every_model_has_a_folder_of_its_own():
    found = folders(["2 states, ma:3", "1 <-> 2", "1 -> 2", "1 <- 2"])
    assert list(found.values()) == ["2-states-ma-3", "1-2", "1-2-(2)", "1-2-(3)"]


@pytest.mark.slow
def test_compare_ranks_by_held_out_data_and_keeps_the_runs(counts, tmp_path):
    words = ("--states", "1..2", "--sampler", "gibbs", "--chains", 2, "--draws", 30, "--out", tmp_path / "kept")
    found = json.loads(call("compare", counts, *words, "--json"))
    runs = [Path(each["run"]) for each in found["runs"]]
    assert [each.name for each in runs] == ["1-state", "2-states"]
    assert [lh.load(each).model.n_states for each in runs] == [1, 2]
    assert len(found["runs"][1]["states"]) == 2
    assert "exists already" in sentence("compare", counts, *words)
    assert [row["model"] for row in found["models"]] == ["2 states", "1 state"]
    assert found["models"][1]["difference"] < -10
