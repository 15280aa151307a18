"""Trends of chances to leave: silent on Markov chains, however badly known, and sharper with several paths."""

import numpy as np
import pytest
from scipy import stats

from longhmm.data.sequences import open_data
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.dwell_times import Exits, dwell_times, exits, judge_dwell_times
from longhmm.posterior.diagnostics.dwell_trend import score, trend
from posterior.fakes import gaussian_model
from testdata.semi_markov import visits_of_given_lengths

TRANSITION = np.array([[0.95, 0.05], [0.1, 0.9]])


def drawn(y, separation, seed=0):
    return DrawnPath(gaussian_model(), {"transition": TRANSITION, "mean": [0.0, separation]}, open_data(y), seed=seed)


def along(path, states):
    return exits(path.model, path.params, states, path.part, path.counts)


def test_score_and_variance_by_hand():
    """Four rows at ages 1 and 2 with a chance of a half, and two departures."""
    rows = Exits(
        np.zeros(4, int), np.array([1, 2, 1, 2]), np.array([1, 1, 2, 2]), np.array([0, 1, 0, 1]), np.full(4, 0.3)
    )
    found, variance, departures = score(rows, 0)
    assert (found, variance, departures) == pytest.approx((np.log(2), np.log(2) ** 2 / 4, 2))
    assert score(rows, 1) == (0.0, 0.0, 0)
    only = trend([rows], 0)
    assert only.p_value == pytest.approx(2 * stats.norm.sf(2))
    assert only.size == pytest.approx(np.sqrt((4 - 1) / 2))


@pytest.mark.parametrize("separation", [3.0, 1.5])
def test_right_chains_are_called_wrong_at_the_stated_rate(separation):
    """Small p-values are no more frequent than they should be, and rarer where paths are known badly."""
    model, params, p_values = gaussian_model(), {"transition": TRANSITION, "mean": [0.0, separation]}, []
    for seed in range(40):
        path = drawn(simulate(model, params, 2000, seed=seed)[1], separation, seed=seed)
        several = [along(path, states) for states in path.several()]
        p_values += [trend(several, level).p_value for level in (0, 1)]
    assert stats.kstest(p_values, "uniform", alternative="greater").pvalue > 1e-3
    if separation == 3.0:
        assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_chances_that_fall_slowly_with_age_are_seen():
    """Negative binomial visits not far from geometric ones: a trend, where single ages say little."""
    draw = lambda rng, state: 1 + rng.negative_binomial(0.75, 0.75 / (0.75 + (19, 9)[state]))  # noqa: E731
    seen, sharper = 0, []
    for seed in range(8):
        path = drawn(visits_of_given_lengths(draw, (0.0, 3.0), 20_000, seed=seed)[0], 3.0)
        seen += bool(judge_dwell_times(path.model, dwell_times(path), {}))
        several = [along(path, states) for states in path.several()]
        sharper += [trend(several, level).p_value < trend(several[:1], level).p_value for level in (0, 1)]
    assert seen >= 7 and np.mean(sharper) > 0.7
