"""Repetitions of experiments: in order, whoever runs them; and the default pipeline as one of the methods."""

import os
from functools import partial

import numpy as np
import pytest

import longhmm as lh
from longhmm.samplers.control_variate_sgld import ControlVariateSGLD
from longhmm.samplers.full_data_hmc import NUTS
from longhmm_reproduction import pipeline
from longhmm_reproduction.document import Document
from longhmm_reproduction.repetitions import run_repetitions, share_out


@pytest.mark.parametrize("workers", [1, 2])
def test_repetitions_come_back_in_their_order(workers):
    do = partial(Document, "rc", "tiny", settings={})  # what is left to give is the seed
    assert [part.settings["seed"] for part in run_repetitions(do, [3, 1, 2], workers)] == [3, 1, 2]


def test_documents_are_joined_repetition_by_repetition():
    whole = Document("rc", "tiny", 7, {})
    for repetition in range(3):
        part = Document("rc", "tiny", repetition, {"known": True})
        part.note("one", {"seconds": [1.0 + repetition]})
        part.curves["one"] = {"steps": [5, 10], "transition_error": [[0.1], [0.2 * repetition]], "exponent": [None, -1]}
        whole.join(part)
    assert whole.repetitions["one"]["seconds"] == [1.0, 2.0, 3.0] and whole.results["one"]["seconds"] == 2.0
    assert whole.results["one"]["seconds_se"] == pytest.approx(1 / np.sqrt(3))
    assert whole.settings["known"] and whole.settings["seed"] == 7
    outcome = whole.finish()
    assert outcome["curves"]["one"]["steps"] == [5, 10]
    np.testing.assert_allclose(outcome["curves"]["one"]["transition_error"], [[0.1] * 3, [0.0, 0.2, 0.4]])
    assert outcome["curves"]["one"]["exponent"] == [[None] * 3, [-1.0] * 3]
    part.curves["one"]["steps"] = [5, 11]
    with pytest.raises(ValueError, match="same steps"):
        whole.join(part)


def test_workers_get_cores_of_their_own(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5, 6, 7, 8}, raising=False)
    assert share_out(2) == [[4, 5], [6, 7]]
    assert [len(each) for each in share_out(7)] == [1] * 7


@pytest.mark.parametrize("exact", [False, True])
def test_the_pipeline_runs_what_sample_would(monkeypatch, exact):
    model = lh.HMM(n_states=2, emission=lh.Poisson())
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "rate": np.array([1.0, 8.0])}
    _, counts = lh.simulate(model, params, 3000, seed=0)
    sequences = lh.open_data(counts)
    model = model.resolve(sequences)
    monkeypatch.setattr(pipeline, "cheaper", lambda *_: exact)
    found = pipeline.run_default(model, sequences, chains=2, draws=20, seed=0)
    assert found.settings["sampler"] == (NUTS.name if exact else ControlVariateSGLD.name)
    mode, mean = found.segments
    assert mean.params["rate"].shape == (2, 2) and mean.seconds > mode.seconds
    np.testing.assert_allclose(mode.params["rate"], [[1.0, 8.0]] * 2, rtol=0.1)
    np.testing.assert_allclose(mean.params["rate"], mode.params["rate"], rtol=0.1)
    least = 20 * 3000 if exact else found.settings["steps"] * found.settings["windows"]
    assert mean.touched > mode.touched + least


def test_the_pipeline_stops_at_the_mode_where_exact_gradients_would_take_too_long(monkeypatch):
    model = lh.HMM(n_states=2, emission=lh.Poisson())
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "rate": np.array([1.0, 8.0])}
    sequences = lh.open_data(lh.simulate(model, params, 3000, seed=0)[1])
    model = model.resolve(sequences)
    monkeypatch.setattr(pipeline, "MOST_ROWS", 1e6)
    found = pipeline.run_default(model, sequences, chains=2, draws=20, seed=0)
    assert found.segments[0] is found.segments[1]
    assert "2e+07 observations" in found.settings["stopped"]
