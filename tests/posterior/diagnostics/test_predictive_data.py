"""Statistics of simulated data sets beside those of the data."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.data.sequences import open_data
from longhmm.errors import ModelError
from longhmm.posterior.diagnostics.predictive_data import _statistics, _worst_score, predictive_statistics
from posterior.fakes import known_states


@pytest.fixture(scope="module")
def known():
    return known_states()


def test_statistics_are_what_they_are_called():
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 2.0, (4000, 1))
    values[1:] += 0.5 * values[:-1]
    found = _statistics(values, [0, 4000])
    column = values[:, 0]
    assert found["mean", 0] == pytest.approx(column.mean()) and found["standard deviation", 0] == pytest.approx(
        column.std()
    )
    assert found["correlation of neighbours", 0] == pytest.approx(np.corrcoef(column[1:], column[:-1])[0, 1], abs=1e-3)
    assert found["largest step", 0] == pytest.approx(np.abs(np.diff(column)).max())
    assert found["spread of means of tenths", 0] == pytest.approx(column.reshape(10, 400).mean(axis=1).std())


def test_sequences_and_missing_values_have_no_neighbours():
    values = np.tile([0.0, 1.0], 50)[:, None]
    assert _statistics(values, [0, 100])["correlation of neighbours", 0] == pytest.approx(-1.0)
    joined = np.concatenate([np.zeros((50, 1)), np.full((50, 1), 9.0)])
    assert _statistics(joined, [0, 50, 100])["largest step", 0] == 0.0
    joined[49] = np.nan
    assert _statistics(joined, [0, 100])["largest step", 0] == 0.0
    assert _statistics(np.full((5, 1), np.nan), [0, 5]) == {}


def test_the_right_model_makes_data_like_these_and_a_wrong_one_does_not(known):
    posterior = known.posterior(known.draw(2, 50))
    right = predictive_statistics(posterior, known.sequences, count=15)
    assert len(right) == 8 and sum(0.0 < each.share < 1.0 for each in right) >= 6
    values = known.sequences.rows(0, 1500).values + np.linspace(-2, 2, 1500)[:, None]
    wrong = {each.name: each for each in predictive_statistics(posterior, open_data(values), count=15)}
    assert wrong["spread of means of tenths"].share == 1.0 and wrong["correlation 10 rows apart"].share == 1.0


def test_the_worst_score_is_of_observed_rows_given_all_before_them(known):
    posterior = known.posterior(known.draw(2, 50))
    params = posterior.params_at(*posterior.thinned(1)[0])
    values = known.sequences.rows(0, 1500).values.astype(float)
    values[700:720] = np.nan
    up_to = [lh.log_likelihood(posterior.model, params, values[:stop]) for stop in range(150, 1501, 150)]
    rows = np.isfinite(values[:, 0]).reshape(10, 150).sum(axis=1)
    found = _worst_score(posterior.model, params, values, [0, 1500])
    assert found == pytest.approx(np.min(np.diff(up_to, prepend=0.0) / rows), rel=1e-9)
    assert _worst_score(posterior.model, params, np.full((30, 1), np.nan), [0, 10, 30]) == np.inf


def test_a_stretch_of_odd_values_has_a_score_that_no_simulated_data_have(known):
    posterior = known.posterior(known.draw(2, 50))
    values = np.array(known.sequences.rows(0, 1500).values, float)
    values[600:640] = 14.0
    found = {each.name: each for each in predictive_statistics(posterior, open_data(values), count=15)}
    assert found["score of the worst tenth"].share == 0.0


def test_models_with_covariates_are_refused(known):
    posterior = known.posterior(known.draw(2, 4))
    posterior.model = lh.HMM(2, lh.Poisson(), transitions="~ temp")
    with pytest.raises(ModelError, match="without covariates"):
        predictive_statistics(posterior, np.zeros(10))


def test_the_worst_score_of_states_that_remember_where_rows_are_missing():
    model = lh.HMM(2, lh.Gaussian(noise=lh.MANoise(2)))
    params = {"transition": [[0.95, 0.05], [0.1, 0.9]], "mean": [0.0, 3.0], "sd": [1.0, 0.8], "theta": [0.4, -0.2]}
    values = np.array(lh.simulate(model, params, 300, seed=1)[1], float).reshape(-1, 1)
    values[100:110] = np.nan
    whole = [lh.log_likelihood(model, params, values[:stop]) for stop in range(30, 301, 30)]
    rows = np.isfinite(values[:, 0]).reshape(10, 30).sum(axis=1)
    resolved = model.resolve(open_data(values))
    found = _worst_score(resolved, resolved.validate(params), values, [0, 300])
    assert found == pytest.approx(np.min(np.diff(whole, prepend=0.0) / rows), rel=1e-9)
