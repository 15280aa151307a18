"""The directory of a run: there before computing, whole afterwards, and the data found again as the model saw them."""

import json

import numpy as np
import pytest

import longhmm as lh
from longhmm.data.preprocess import Preprocessing
from longhmm.errors import DataError
from longhmm.posterior.run_directory import RunDirectory
from posterior.fakes import known_states


@pytest.fixture
def request_of(tmp_path):
    values = np.linspace(0.0, 10.0, 103)
    np.save(tmp_path / "y.npy", values)
    steps = Preprocessing(decimate=4, normalise=True, centre=(5.0,), scale=(2.0,))
    return {
        "recordings": [str(tmp_path / "y.npy")],
        "dataset": None,
        "columns": None,
        "rate": 100.0,
        "unit": "pA",
        "preprocessing": steps.to_dict(),
        "held_out": 0.25,
        "model": {},
        "sample": {},
    }


def test_data_come_back_as_the_model_saw_them(tmp_path, request_of):
    RunDirectory.create(tmp_path / "run", request_of)
    run = RunDirectory.open(tmp_path / "run")
    values = np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(run.data().rows(0, 26).values[:, 0], (values[::4] - 5.0) / 2.0)
    assert (run.rate, run.model_rate, run.unit) == (100.0, 25.0, "pA")
    fitted, held, continues = run.split()
    assert (fitted.length, held.length, continues) == (20, 6, True)
    np.save(tmp_path / "other.npy", values + 1.0)
    np.testing.assert_allclose(run.data(tmp_path / "other.npy").rows(0, 3).values[:, 0], (values[:12:4] - 4.0) / 2.0)


def test_the_posterior_is_kept_inside_and_loads_by_the_name_of_the_run(tmp_path, request_of):
    run = RunDirectory.create(tmp_path / "run", request_of)
    assert not run.has_posterior
    with pytest.raises(DataError, match="has no posterior yet; finish it with `longhmm resume"):
        run.posterior()
    posterior = known_states(200).posterior()
    run.save(posterior)
    run.save(posterior)  # an older one is replaced
    assert run.has_posterior
    for found in (run.posterior(), lh.load(tmp_path / "run")):
        np.testing.assert_array_equal(found.draws["mean"], posterior.draws["mean"])


def test_events_end_where_the_file_ends(tmp_path, request_of):
    run = RunDirectory.create(tmp_path / "run", request_of)
    path = np.repeat([0, 1], 13)
    table = run.events(known_states(200).posterior(), path=path)
    np.testing.assert_array_equal(table["start"], [0, 52])
    np.testing.assert_array_equal(table["end"], [52, 103])  # 26 kept samples of 4 would end at 104
    np.testing.assert_allclose(table["end_s"], [0.52, 1.03])


def test_places_that_are_no_runs_are_refused(tmp_path, request_of):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("do not touch")
    with pytest.raises(DataError, match="exists already; choose another directory"):
        RunDirectory.create(tmp_path / "full", request_of)
    with pytest.raises(DataError, match="does not exist"):
        RunDirectory.open(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no run\.json"):
        RunDirectory.open(tmp_path / "full")
    (tmp_path / "full" / "run.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        RunDirectory.open(tmp_path / "full")
    (tmp_path / "full" / "run.json").write_text(json.dumps({"format": "longhmm run", "version": 99}))
    with pytest.raises(DataError, match="does not describe a run"):
        RunDirectory.open(tmp_path / "full")
