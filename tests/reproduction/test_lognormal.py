"""The two families of the log-normal experiment: tables, curves and iterations from one small run."""

import numpy as np
import pytest

from longhmm.model.simulate import simulate
from longhmm_reproduction import lognormal, models
from longhmm_reproduction.document import Document


@pytest.fixture(scope="module")
def data():
    model, truth = models.lognormal()
    values = simulate(model, truth, 2_500, seed=0)[1]
    return truth, [(values[:2_000], values[2_000:])]


def test_more_states_are_tried_and_scored_in_blocks(data):
    truth, sets = data
    found = Document("lognormal", "tiny", 0, {})
    found.extra["blocks"] = {}
    fitted = {each: lognormal.family("gaussian", each).resolve(sets[0][0]) for each in (1, 2)}
    size = lognormal.SIZES["tiny"]
    lognormal._select(found, "gaussian", truth, fitted, sets, size, 0)
    one, two = (found.results[f"gaussian-k{each}"] for each in (1, 2))
    assert "transition_error" not in one and 0.1 < two["transition_error"] < 1.5  # the wrong model has it wrong
    assert two["predictive_log_prob"] > one["predictive_log_prob"] + 1.0
    assert two["observations_touched"] >= 2 * 2_000 and two["seconds"] > 0
    blocks = found.extra["blocks"]["gaussian"]
    assert {each: len(values) for each, values in blocks.items()} == {1: 5, 2: 5}
    assert np.mean(blocks[2]) == pytest.approx(two["predictive_log_prob"])


def test_a_gaussian_is_matched_by_the_means_of_log_normal_states(data):
    truth, _ = data
    np.testing.assert_allclose(lognormal._with_means(truth)["mean"], [np.exp(2.0), np.exp(6.0)])
