"""Where sequences of unlike brightness begin: by sizes and densities, and by what a chain says."""

import numpy as np
from scipy import stats

import longhmm as lh
from longhmm.model.alignment import SHIFTS, Histogram, _forward, aligned, explained

LEVELS = {"mean": np.array([3.0, 7.0]), "sd": np.array([0.6, 0.8])}


def test_a_sequence_that_stays_on_one_level_is_not_taken_for_the_other():
    """Mean sizes alone would take twenty sequences apart by what level prevails in them."""
    rng = np.random.default_rng(3)
    logs = 0.4 * rng.normal(size=20)
    shares = np.linspace(0.02, 0.98, 20)
    data = []
    for log, share in zip(logs, shares, strict=True):
        high = rng.random(100) < share
        data.append(np.exp(log) * np.where(high, 7.0 + 0.8 * rng.normal(size=100), 3.0 + 0.6 * rng.normal(size=100)))
    columns = [each[:, None] for each in data]

    def off(found):
        """Errors, but for what all have in common."""
        return np.abs(found - logs - np.median(found - logs))

    sizes, first = np.array([np.log(np.abs(each).mean()) for each in data]), aligned(columns)
    assert np.mean(off(sizes) < 0.1) < 0.5
    assert np.mean(off(first) < 0.1) >= 0.75  # all but those where one level is nearly all
    model, params = lh.HMM(2, lh.Gaussian()), {"transition": np.full((2, 2), 0.5), **LEVELS}
    assert off(explained(model, model.emission, params, columns, first)).max() < 0.1
    data[0][:] = np.nan  # nothing is known of it
    assert np.isfinite(aligned([each[:, None] for each in data])).all()


def test_a_chain_tells_rare_visits_from_another_level():
    """Of a hundred rows on the upper level two are below: alone, they might be a brighter sequence on the lower one."""
    rng = np.random.default_rng(0)
    chain = np.array([[0.96, 0.04], [0.06, 0.94]])
    model, params = lh.HMM(2, lh.Gaussian()), {"transition": chain, **LEVELS}
    high = np.ones(100, bool)
    high[40:42] = False
    values = np.where(high, 7.0 + 0.8 * rng.normal(size=100), 3.0 + 0.6 * rng.normal(size=100))
    data = [1.3 * values[:, None], 1.3 * values[:60, None]]  # a shorter one, too
    wrong = np.full(2, np.log(1.3 * 7 / 3))
    found = explained(model, model.emission, params, data, wrong)
    np.testing.assert_allclose(found, np.log(1.3), atol=0.05)  # two steps of the grid
    assert np.ptp(np.diff(SHIFTS)) < 1e-12 and SHIFTS[60] == 0.0


def test_the_forward_pass_is_that_of_the_package():
    chain = np.array([[0.9, 0.1], [0.3, 0.7]])
    values = np.random.default_rng(1).normal(5, 2, size=30)
    logs = stats.norm.logpdf(values[:, None], LEVELS["mean"], LEVELS["sd"])
    model = lh.HMM(2, lh.Gaussian(), initial=[0.5, 0.5])
    expected = lh.log_likelihood(model, {"transition": chain, **LEVELS}, values)
    np.testing.assert_allclose(_forward(chain, logs[None]), expected, rtol=1e-9)


def test_a_histogram_is_a_density():
    table = Histogram(np.random.default_rng(2).normal(size=50_000))
    middle = 0.5 * (table.edges[1:] + table.edges[:-1])
    expected = stats.norm.pdf(middle)
    assert np.abs(np.exp(table.logs[1:-1]) - expected).max() < 0.03
    assert table.mean_log(np.array([np.nan])) == 0.0
