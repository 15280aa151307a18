"""Dwell times and rates, against plain computations."""

import numpy as np
import pytest
from scipy.linalg import expm

from longhmm.errors import ModelError
from longhmm.posterior.diagnostics.dwell_times import complete_visits, dwell_histogram
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.summary import generator_of
from posterior.fakes import chains_of, gaussian_model


def test_dwell_histograms_count_complete_visits(known, posterior, table):
    found = dwell_histogram(posterior, table, rate=1000.0)
    whole = complete_visits(table)
    assert len(whole) == len(table) - 2
    for state, part in found.groupby("state"):
        mine = whole[whole["state"] == state]
        lengths = (mine["end"] - mine["start"]).to_numpy() / 1000.0
        assert part["count"].sum() == len(mine)
        for row in part.itertuples():
            assert row.count == ((lengths > row.lower * (1 + 1e-9)) & (lengths <= row.upper * (1 + 1e-9))).sum()
        stay = 1 - np.asarray(posterior.draws["transition"])[..., state, 1 - state].reshape(-1)
        first = len(mine) * (1 - stay)  # visits of one sample
        assert part["expected"].iloc[0] == pytest.approx(first.mean())
        assert part["expected_lower"].iloc[0] == pytest.approx(np.quantile(first, 0.05))
        assert part["expected_upper"].iloc[0] == pytest.approx(np.quantile(first, 0.95))
        # The data come from the model: counts scatter around what it expects.
        pooled = np.sum((part["count"] - part["expected"]) ** 2 / np.maximum(part["expected"], 1.0))
        assert pooled < len(part) + 4 * np.sqrt(2 * len(part))
    ratio = np.diff(np.log10(found[found["state"] == 0]["upper"].to_numpy()))
    assert ratio[-3:].max() < 0.2  # ten per decade, once whole numbers are dense enough


def test_dwell_histograms_of_a_decimated_recording_count_what_the_model_saw(posterior, table):
    found = dwell_histogram(posterior, table)
    scaled = table.assign(start=5 * table["start"], end=5 * table["end"])
    file = dwell_histogram(posterior, scaled, every=5)
    for name in ("lower", "upper"):
        np.testing.assert_array_equal(file[name], 5 * found[name])
    for name in ("count", "expected", "expected_lower", "expected_upper"):
        np.testing.assert_array_equal(file[name], found[name])
    narrow = dwell_histogram(posterior, table, interval=0.5)
    assert (narrow["expected_upper"] <= found["expected_upper"]).all()
    with pytest.raises(ModelError, match="rate must be a positive number"):
        dwell_histogram(posterior, table, rate=0.0)
    with pytest.raises(ModelError, match="per_decade and every must be at least 1, got 0 and 1"):
        dwell_histogram(posterior, table, per_decade=0)


def test_generators_are_recovered_and_what_has_none_is_said():
    generator = np.array([[-0.2, 0.15, 0.05], [0.3, -0.4, 0.1], [0.0, 0.5, -0.5]])
    found, sound = generator_of(expm(generator))
    assert sound
    np.testing.assert_allclose(found, generator, atol=1e-10)
    for matrix in ([[0.1, 0.9], [0.9, 0.1]], [[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0, 0.9]]):
        found, sound = generator_of(np.array(matrix))
        assert not sound
        np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-12)
        assert (found - np.diag(np.diag(found)) >= 0).all()


def test_generators_and_switching_rates(posterior):
    found = posterior.rates(rate=500.0, draws=300)
    assert found.embeddable == 1.0
    assert found.warning is None
    everything = np.asarray(posterior.draws["transition"])
    transition = np.stack([everything[chain, draw] for chain, draw in posterior.thinned(300)])
    out, back = transition[:, 0, 1], transition[:, 1, 0]
    # Of two states: log A = -log(1 - a - b) / (a + b) [[-a, a], [b, -b]].
    factor = -np.log(1 - out - back) / (out + back) * 500.0
    row = found.table.set_index(["state", "to_state"]).loc[(0, 1)]
    assert row["mean"] == pytest.approx((factor * out).mean())
    assert row["lower"] == pytest.approx(np.quantile(factor * out, 0.05))
    np.testing.assert_allclose(found.generator.sum(axis=1), 0.0, atol=1e-9)
    flow = found.switching.set_index(["state", "to_state"])["mean"]
    assert flow[(0, 1)] == pytest.approx((500.0 * out * back / (out + back)).mean())
    assert flow[(0, 1)] == pytest.approx(flow[(1, 0)])


def test_a_matrix_without_generator_warns():
    model = gaussian_model()
    rng = np.random.default_rng(0)
    off = rng.uniform(0.85, 0.95, (2, 50))
    transition = np.stack([np.stack([1 - off, off], -1), np.stack([off, 1 - off], -1)], -2)
    natural = {"transition": transition, "mean": np.tile([[[0.0, 4.0]]], (2, 50, 1))}
    flipping = Posterior.from_chains(model, chains_of(model, natural), {"has_states": True})
    with pytest.warns(UserWarning, match="for 100% of the draws no process in continuous time"):
        found = flipping.rates()
    assert found.embeddable == 0.0
