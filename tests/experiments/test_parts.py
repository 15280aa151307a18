"""Parts of experiments: in order, whoever runs them; and a pipeline that stops at the mode."""

import os
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import longhmm as lh
from longhmm.experiments import pipeline, simulated, variational
from longhmm.experiments.document import Document
from longhmm.experiments.parts import run_parts, share_out


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_come_back_in_their_order(workers):
    do = partial(Document, "rc", "tiny", settings={})  # what is left to give is the seed
    assert [part.settings["seed"] for part in run_parts(do, ["one", "two", "three"], workers)] == [
        "one",
        "two",
        "three",
    ]


def test_documents_are_joined():
    whole = Document("rc", "tiny", 0, {})
    for name in ("one", "two"):
        part = Document("rc", "tiny", 0, {name: True})
        part.note(name, {"seconds": [1.0, 2.0]})
        whole.join(part)
    assert list(whole.results) == list(whole.repetitions) == ["one", "two"] and whole.results["two"]["seconds"] == 1.5
    assert whole.settings["one"] and whole.settings["two"]


def test_workers_get_cores_of_their_own(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5, 6, 7, 8}, raising=False)
    assert share_out(2) == [[4, 5], [6, 7]]
    assert [len(each) for each in share_out(7)] == [1] * 7


def test_the_parts_of_every_size_are_named_once():
    for size in simulated.SIZES.values():
        parts = simulated._parts(size)
        assert len(set(parts)) == len(parts) and {"buffered", "unbuffered", "iid", "default", "truth"} <= set(parts)
    assert "budget-L1-S73" in simulated._parts(simulated.SIZES["paper"])


def test_the_pipeline_stops_at_the_mode_where_chains_would_take_for_ever(monkeypatch):
    model = lh.HMM(n_states=2, emission=lh.Poisson())
    sequences = lh.open_data(np.arange(10))
    model = model.resolve(sequences)
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "rate": np.array([1.0, 8.0])}
    windows = lh.Windows(10, 1024)
    mode = SimpleNamespace(
        coordinates=lh.unconstrain(model, params),
        buffer=3,
        windows=windows,
        log_posterior=-1.0,
        passes=4,
        decrement=2.0,
    )
    source = SimpleNamespace(windows=windows)
    estimator = SimpleNamespace(control=SimpleNamespace(plain=SimpleNamespace(source=source)))
    tuned = SimpleNamespace(mode=mode, estimator=estimator, step_size=1e-6, noise=1e4, autocorrelation=2e6)
    monkeypatch.setattr(pipeline, "tune", lambda *_, **__: tuned)
    found = pipeline.run_default(model, sequences, chains=3, draws=10, seed=0)
    assert found.draws is None and len(found.segments) == 1
    np.testing.assert_allclose(found.segments[0].params["rate"], [[1.0, 8.0]] * 3, rtol=1e-6)
    assert "6e+07 steps" in found.settings["stopped"] and found.settings["windows"] == 1024


def test_both_posteriors_are_compared_in_the_same_parameters():
    rng = np.random.default_rng(0)

    def draws(rows):
        spread = rng.normal(scale=1e-3, size=(50, 2, 2))
        return {
            "mean": rng.normal(size=(50, 2, 1)),
            "covariance": rng.uniform(1.0, 2.0, size=(50, 2, 1, 1)),
            "transition": np.asarray(rows) + np.stack([spread[..., 0], -spread[..., 0]], axis=-1),
        }

    exact, other = draws([[0.94, 0.06], [0.5, 0.5]]), draws([[0.96, 0.04], [0.5, 0.5]])
    possible = np.flatnonzero(exact["transition"].mean(axis=0) > variational.POSSIBLE)
    one, two = (variational._summary(each, possible) for each in (exact, other))
    assert one["sd"].shape == two["sd"].shape == (8,) and one["squares"].shape == two["squares"].shape
