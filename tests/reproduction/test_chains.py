"""Chains that are looked at: bookkeeping of steps, data read, and buffers; and that they find the truth."""

import numpy as np
import pytest

import longhmm as lh
from longhmm_reproduction.chains import Method, Watched, late_average
from longhmm_reproduction.document import Document, short


@pytest.fixture(scope="module")
def problem():
    model = lh.HMM(n_states=2, emission=lh.Poisson())
    truth = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "rate": np.array([1.0, 8.0])}
    _, counts = lh.simulate(model, truth, 20_000, seed=0)
    sequences = lh.open_data(counts)
    starts = [{"transition": np.full((2, 2), 0.5), "rate": np.array(rate)} for rate in ([2.0, 6.0], [0.5, 12.0])]
    return model.resolve(sequences), truth, sequences, starts


@pytest.fixture(scope="module")
def segments(problem):
    model, _, sequences, starts = problem
    watched = Watched(model, sequences, lh.SGRLD(0.05), Method(), lh.Windows(5, 10), seed=0)
    return watched.go(starts, steps=400, looks=4)


def test_chains_go_from_their_starts_to_the_truth(problem, segments):
    truth = problem[1]
    late = late_average(segments)
    assert late["transition"].shape == (2, 2, 2)
    for chain in range(2):
        np.testing.assert_allclose(late["transition"][chain], truth["transition"], atol=0.05)
        np.testing.assert_allclose(late["rate"][chain], truth["rate"], rtol=0.1)


def test_looks_count_steps_and_observations(segments):
    steps, touched = [each.steps for each in segments], [each.touched for each in segments]
    assert len(segments) == 4 and steps[-1] > 350
    read = [10 * (11 + 2 * each.buffer) for each in segments]
    # Before every look the buffer is measured, here on all of the data.
    np.testing.assert_allclose(np.diff(touched, prepend=0), np.diff(steps, prepend=0) * read + 20_000)
    assert all(each.buffer >= 1 and each.exponent < 0 for each in segments)
    assert all(np.diff([each.seconds for each in segments]) > 0)


def test_a_document_has_means_errors_and_curves(problem, segments):
    found = Document("rc", "tiny", 0, {})
    found.add("buffered", segments, late_average(segments), lambda params: {"rate": float(params["rate"][0])})
    outcome = found.finish()
    metrics = outcome["results"]["buffered"]
    assert set(metrics) == {
        f"{name}{end}" for name in ("rate", "seconds", "observations_touched") for end in ("", "_se")
    }
    assert metrics["rate"] == pytest.approx(np.mean(outcome["repetitions"]["buffered"]["rate"]))
    assert np.shape(outcome["curves"]["buffered"]["rate"]) == (4, 2)
    assert set(short(outcome)) == {"experiment", "settings", "results"}
