"""Levels of states and rates of transitions, against their closed forms."""

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.stats import norm

from longhmm.posterior.posterior import Posterior
from longhmm.posterior.summary import generators_from, level_draws, levels
from posterior.fakes import chains_of, gaussian_model


def test_levels_have_the_interval_of_the_closed_form(known, posterior):
    found = levels(posterior, interval=0.9)
    np.testing.assert_allclose(found["level"], known.mean, atol=5 * known.sd.max() / np.sqrt(2000))
    for end, sign in (("level_lower", -1), ("level_upper", 1)):
        wanted = known.mean + sign * norm.isf(0.05) * known.sd
        np.testing.assert_allclose(found[end], wanted, atol=0.25 * known.sd.max())
    assert level_draws(posterior, 10).shape == (10, 2)


def test_generators_are_recovered_and_what_has_none_is_said():
    # The second has eigenvectors that fall together, the third some that nearly do.
    onward = [[[-0.1, 0.1, 0.0], [0.0, -rate, rate], [0.0, 0.0, 0.0]] for rate in (0.1, 0.1 + 1e-7)]
    generators = np.array([[[-0.2, 0.15, 0.05], [0.3, -0.4, 0.1], [0.0, 0.5, -0.5]], *onward])
    found, sound = generators_from(np.stack([expm(each) for each in generators]))
    assert sound.all()
    np.testing.assert_allclose(found, generators, atol=1e-10)
    for matrix in ([[0.1, 0.9], [0.9, 0.1]], [[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0, 0.9]]):
        (found,), (sound,) = generators_from(np.array([matrix]))
        assert not sound
        np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-12)
        assert (found - np.diag(np.diag(found)) >= 0).all()


def test_generators_and_switching_rates(posterior):
    found = posterior.rates(rate=500.0, draws=300)
    assert found.attrs["warning"] is None
    assert list(found.columns) == ["from", "to", "mean", "sd", "low", "high"]
    everything = np.asarray(posterior.draws["transition"])
    transition = np.stack([everything[chain, draw] for chain, draw in posterior.thinned(300)])
    out, back = transition[:, 0, 1], transition[:, 1, 0]
    # Of two states: log A = -log(1 - a - b) / (a + b) [[-a, a], [b, -b]].
    factor = -np.log(1 - out - back) / (out + back) * 500.0
    row = found.set_index(["from", "to"]).loc[(0, 1)]
    assert row["mean"] == pytest.approx((factor * out).mean())
    assert row["sd"] == pytest.approx((factor * out).std())
    assert row["low"] == pytest.approx(np.quantile(factor * out, 0.05))
    flow = posterior.rates(rate=500.0, draws=300, flow=True).set_index(["from", "to"])["mean"]
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
    assert found.attrs["warning"].startswith("for 100%")
