"""`longhmm simulate` writes what the library draws."""

import json

import numpy as np

import longhmm as lh
from cli.calls import call


def test_simulate_writes_what_the_library_draws(tmp_path):
    from longhmm_reproduction.models import dd

    words = ("--length", 300, "--out", tmp_path / "dd.npy", "--states", tmp_path / "x.npy", "--seed", 5, "--json")
    printed = json.loads(call("simulate", "dd", *words))
    states, values = lh.simulate(*dd(), 300, seed=5)
    np.testing.assert_array_equal(np.load(tmp_path / "dd.npy"), values)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), states)
    np.testing.assert_allclose(printed["params"]["transition"], dd()[1]["transition"])
