"""One real fit, and a run whose posterior is known."""

import json

import h5py
import numpy as np
import pytest

import longhmm as lh
from cli.calls import FIT, call
from longhmm.posterior.run_directory import RunDirectory
from posterior.fakes import known_states


@pytest.fixture(scope="session")
def counts(tmp_path_factory):
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.95, 0.05], [0.1, 0.9]], "rate": [2.0, 12.0]}
    _, values = lh.simulate(model, params, 1500, seed=1)
    file = tmp_path_factory.mktemp("counts") / "counts.h5"
    with h5py.File(file, "w") as stored:
        stored["y"] = values[:, 0]
        stored["y"].attrs["rate"] = 50.0
    return file


@pytest.fixture(scope="module")
def fitted(counts, tmp_path_factory):
    """A run of 30 draws, and what the command printed."""
    place = tmp_path_factory.mktemp("runs") / "run"
    return place, json.loads(call("fit", counts, "--out", place, "--draws", 30, *FIT))


@pytest.fixture(scope="session")
def known(tmp_path_factory):
    """A run with a posterior in closed form, on a recording of which every second sample was kept and halved."""
    folder = tmp_path_factory.mktemp("known")
    setting = known_states(400)
    values = np.asarray(setting.sequences.rows(0, 400).values)[:, 0]
    stored = np.full(799, 1e6)
    stored[::2] = 2.0 * values + 10.0
    np.savez(folder / "y.npz", y=stored, rate=100.0)
    steps = {"decimate": 2, "normalise": True, "centre": [10.0], "scale": [2.0]}
    request = {"recordings": [str(folder / "y.npz")], "rate": 100.0, "unit": "pA", "model": {}, "sample": {"draws": 1}}
    run = RunDirectory.create(folder / "run", {**request, "preprocessing": steps})
    run.save(setting.posterior())
    return folder, setting
