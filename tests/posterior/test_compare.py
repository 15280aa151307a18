"""Held-out comparison: which model wins, by how much, and how sure that is."""

import numpy as np
import pytest

from longhmm.backends.answers import log_likelihood
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.model.simulate import simulate
from longhmm.posterior import compare as module
from longhmm.posterior.compare import compare, paired_difference
from longhmm.posterior.posterior import Posterior
from posterior.fakes import chains_of, gaussian_model

TRUTH = {"transition": np.array([[0.95, 0.05], [0.05, 0.95]]), "mean": np.array([-1.0, 1.0])}


@pytest.fixture(scope="module")
def data():
    return simulate(gaussian_model(2), TRUTH, 3000, seed=4)[1]


def point(model, training):
    """A posterior with all its mass on the truth (or, for one state, on the mean of the training data)."""
    if model.n_states == 2:
        natural = {name: np.tile(value, (1, 2, *[1] * value.ndim)) for name, value in TRUTH.items()}
    else:
        mean = np.full((1, 2, 1), training.rows(0, training.length).values.mean())
        natural = {"transition": np.ones((1, 2, 1, 1)), "mean": mean}
    return Posterior.from_chains(model, chains_of(model, natural), {"has_states": True})


def test_the_right_number_of_states_wins(data):
    table = compare([gaussian_model(1), gaussian_model(2)], data, held_out=0.3, fit=point, blocks=30)
    assert list(table.index) == ["2 states", "1 state"]
    assert table["n_states"].tolist() == [2, 1]
    model, cut = gaussian_model(2), 2100
    whole, first = log_likelihood(model, TRUTH, data), log_likelihood(model, TRUTH, data[:cut])
    assert table.loc["2 states", "log_density"] == pytest.approx(whole - first, rel=1e-9)
    assert table.loc["2 states", "per_observation"] == pytest.approx((whole - first) / 900, rel=1e-9)
    gap = table.loc["1 state", "log_density"] - table.loc["2 states", "log_density"]
    assert table.loc["1 state", "difference"] == pytest.approx(gap)
    assert table.loc["2 states", ["difference", "difference_error"]].tolist() == [0.0, 0.0]
    assert gap < -5 * table.loc["1 state", "difference_error"] < 0


def test_posteriors_are_compared_on_data_they_have_not_seen(data):
    training = open_data(data[:2000])
    fitted = {"one": point(gaussian_model(1), training), "two": point(gaussian_model(2), training)}
    table = compare(fitted, test=data[2000:])
    assert table.index[0] == "two"
    assert table.loc["two", "log_density"] == pytest.approx(log_likelihood(gaussian_model(2), TRUTH, data[2000:]))
    with pytest.raises(ModelError, match="test="):
        compare(fitted)
    with pytest.raises(ModelError, match="at least one model"):
        compare([], data)


def test_paired_differences():
    one, other = np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.0])
    difference, error = paired_difference(one, other)
    assert difference == pytest.approx(0.5)
    assert error == pytest.approx(np.sqrt(3) * np.std([-0.5, 0.0, 1.0], ddof=1))
    assert paired_difference(np.array([0.0, -np.inf]), other[:2])[0] == -np.inf


def test_without_a_fit_the_pipeline_is_used(data, monkeypatch):
    monkeypatch.setattr(module, "sample", lambda model, training, verdict: point(model, training))
    assert len(compare([gaussian_model(2), gaussian_model(2)], data)) == 2
