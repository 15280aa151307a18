"""Held-out scores and forecasts, against enumeration of all paths."""

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

from longhmm import Gaussian, Poisson
from longhmm.backends.answers import log_likelihood
from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.predict import last_state, predictions, predictive_log_prob
from longhmm.testing import enumerate_paths
from posterior.fakes import chains_of, gaussian_model, small_posterior

DATA = [np.array([0.3, -1.0, 2.2, np.nan, 1.9]), np.array([-2.0, 0.4, 0.1])]


@pytest.fixture(scope="module")
def posterior():
    return small_posterior(gaussian_model(3))


def log_densities(params, values):
    logs = stats.norm.logpdf(values[:, None], params["mean"], 1.0)
    return np.where(np.isnan(logs), 0.0, logs)


def brute_log_likelihood(params, values):
    return enumerate_paths(params["initial"], params["transition"], log_densities(params, values)).log_likelihood


def brute_ahead(params, values, t, steps):
    """log p(y_{t+steps} | y_0 .. y_t): everything between is treated as missing."""
    hidden = values[: t + steps + 1].copy()
    hidden[t + 1 : t + steps] = np.nan
    return brute_log_likelihood(params, hidden) - brute_log_likelihood(params, values[: t + 1])


def test_score_is_the_log_of_the_mean_likelihood(posterior):
    each = np.array([sum(brute_log_likelihood(params, values) for values in DATA) for params in posterior.iterate(6)])
    found = posterior.score(DATA, draws=6, blocks=3)
    np.testing.assert_allclose(found.by_draw, each, rtol=1e-10)
    assert found.log_density == pytest.approx(logsumexp(each) - np.log(6), rel=1e-10)
    assert found.n_observations == 7
    assert found.per_observation == pytest.approx(found.log_density / 7)
    assert found.blocks.shape == (3,)
    assert found.blocks.sum() == pytest.approx(found.log_density)
    weights = np.exp(each - each.max())
    assert found.error == pytest.approx(weights.std(ddof=1) / weights.mean() / np.sqrt(6))
    assert "7 observations" in str(found)


def test_blocks_are_conditional_scores(posterior):
    """The first two of three blocks alone have the score of the data up to there."""
    values = DATA[1]
    whole = posterior.score(values, draws=6, blocks=3)
    part = posterior.score(values[:2], draws=6, blocks=2)
    np.testing.assert_allclose(whole.blocks[:2].sum(), part.log_density, rtol=1e-10)


def test_score_after_the_training_data(posterior):
    """log p(test | train, theta) is log p(train and test) - log p(train)."""
    train, test = DATA[0], DATA[1]
    each = [
        brute_log_likelihood(params, np.concatenate([train, test])) - brute_log_likelihood(params, train)
        for params in posterior.iterate(6)
    ]
    found = posterior.score(test, draws=6, after=train)
    assert found.log_density == pytest.approx(logsumexp(each) - np.log(6), rel=1e-9)
    assert np.all(np.abs(found.by_draw - posterior.score(test, draws=6).by_draw) > 1e-2)
    with pytest.raises(ModelError, match="blocks must be a whole number of at least 1"):
        posterior.score(test, blocks=0)
    with pytest.raises(DataError, match="after= goes with one sequence"):
        posterior.score(DATA, after=train)


def test_impossible_data_score_minus_infinity():
    model = HMM(1, Gaussian(sd=1.0, mean=dist.Normal(0, 1)))
    posterior = small_posterior(model, n=2)
    with np.errstate(over="ignore"):
        assert np.isfinite(posterior.score(np.array([3.0]), draws=2).log_density)
    banned = gaussian_model(2, transition_prior=np.array([[1.0, 1.0], [0.0, 1.0]]), initial=[0.0, 1.0])
    natural = {"transition": np.tile([[0.5, 0.5], [0.0, 1.0]], (1, 2, 1, 1)), "mean": np.zeros((1, 2, 2))}
    stuck = Posterior.from_chains(banned, chains_of(banned, natural))
    score = stuck.score(open_data(np.zeros(3), states=np.array([1, 1, 0])), draws=2)
    assert score.log_density == -np.inf


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_predictions_ahead_against_enumeration(posterior, steps):
    params = posterior.params_at(0, 0)
    expected = [
        brute_ahead(params, values, t, steps)
        for values in DATA
        for t in range(len(values) - steps)
        if np.isfinite(values[t + steps])
    ]
    if steps == 1:  # the first of each sequence is predicted from the initial distribution
        expected += [brute_log_likelihood(params, values[:1]) for values in DATA]
    found = predictive_log_prob(posterior.model, params, DATA, steps=steps)
    assert found.n_observations == len(expected)
    assert found.mean == pytest.approx(np.mean(expected), rel=1e-10)
    several = [posterior.params_at(0, 0), posterior.params_at(1, 1)]
    both = [[brute_ahead(each, DATA[0], t, 2) for t in range(3) if np.isfinite(DATA[0][t + 2])] for each in several]
    mixed = predictive_log_prob(posterior.model, several, DATA[0], steps=2)
    assert mixed.mean == pytest.approx(np.mean(logsumexp(both, axis=0) - np.log(2)), rel=1e-10)


def test_one_step_predictions_add_up_over_many_blocks(monkeypatch):
    """Long enough for several blocks: what is carried over their edges is checked too."""
    monkeypatch.setattr("longhmm.backends.read.COPIED_ROWS", 1 << 10)
    model = gaussian_model(2)
    params = {"transition": np.array([[0.95, 0.05], [0.1, 0.9]]), "mean": np.array([-0.5, 0.5])}
    _, values = simulate(model, params, 6000, seed=1)
    parts = list(predictions(model, params, open_data(values)))
    assert len(parts) > 3
    densities = log_densities(params, values[:, 0].astype(np.float64))
    total = logsumexp(np.log(np.concatenate([part.states for part in parts])) + densities, axis=1).sum()
    assert total == pytest.approx(log_likelihood(model, params, values), rel=1e-12)
    ahead = np.concatenate([part.states for part in predictions(model, params, open_data(values), 7)])
    near = np.concatenate([part.states for part in parts])
    jump = np.linalg.matrix_power(params["transition"], 6)
    np.testing.assert_allclose(ahead[7:], near[1:-6] @ jump, atol=1e-10)


def test_predictions_need_room(posterior):
    with pytest.raises(DataError, match="10 steps after"):
        posterior.predictive_log_prob(DATA, steps=10)
    with pytest.raises(ModelError, match="steps must be a whole number of at least 1"):
        posterior.predictive_log_prob(DATA, steps=0)


def test_the_error_of_a_predictive_score_is_honest():
    """Means of independent data sets scatter by as much as each reports."""
    model = gaussian_model(2)
    params = {"transition": np.array([[0.95, 0.05], [0.1, 0.9]]), "mean": np.array([-1.0, 1.0])}
    found = [predictive_log_prob(model, params, simulate(model, params, 2000, seed=s)[1], steps=3) for s in range(30)]
    scatter = np.std([each.mean for each in found], ddof=1)
    assert np.mean([each.error for each in found]) == pytest.approx(scatter, rel=0.4)


def test_last_state_reads_only_the_end_but_is_exact(posterior):
    params = posterior.params_at(0, 0)
    values = np.random.default_rng(0).normal(size=5000)
    laws = np.concatenate([part.states for part in predictions(posterior.model, params, open_data(values[:, None]))])
    expected = laws[-1] * np.exp(log_densities(params, values[-1:])[0])
    np.testing.assert_allclose(
        last_state(posterior.model, params, open_data(values)), expected / expected.sum(), atol=1e-9
    )


def test_last_state_of_a_chain_that_forgets_nothing():
    """States that never change and say nothing about the data until the very start: the whole is read."""
    model = gaussian_model(2)
    params = {"transition": np.eye(2), "mean": np.array([-1.0, 1.0])}
    values = np.full(20_000, np.nan)
    values[0] = 0.7
    odds = np.exp(stats.norm.logpdf(0.7, [-1.0, 1.0]))
    np.testing.assert_allclose(last_state(model, params, open_data(values)), odds / odds.sum(), rtol=1e-9)


def test_forecast(posterior):
    values = DATA[1]
    found = posterior.forecast(values, 4, draws=6, paths=2000, quantiles=(0.1, 0.9))
    laws, means, seconds = [], [], []
    for params in posterior.iterate(6):
        law = enumerate_paths(params["initial"], params["transition"], log_densities(params, values)).filtered[-1]
        ahead = [law := law @ params["transition"] for _ in range(4)]
        laws.append(ahead)
        means.append(np.array(ahead) @ params["mean"])
        seconds.append(np.array(ahead) @ (params["mean"] ** 2 + 1.0))
    np.testing.assert_allclose(found.state_probabilities, np.mean(laws, axis=0), atol=1e-10)
    sd = np.sqrt(np.mean(seconds, axis=0) - np.mean(means, axis=0) ** 2)
    assert np.all(np.abs(found.mean[:, 0] - np.mean(means, axis=0)) < 4 * sd / np.sqrt(12_000))
    np.testing.assert_allclose(found.sd[:, 0], sd, rtol=0.04)
    below = found.samples[:, :, 0] < found.quantiles[0.9][:, 0]
    np.testing.assert_allclose(below.mean(axis=0), 0.9, atol=0.001)
    assert found.samples.shape == (12_000, 4, 1)
    assert np.array_equal(posterior.forecast(values, 4, draws=6, paths=2000).mean, found.mean)
    with pytest.raises(ModelError, match="steps must be a whole number"):
        posterior.forecast(values, 0)


def test_forecast_paths_move_like_the_chain():
    """Neighbouring steps of one path are as correlated as the chain makes them."""
    model = gaussian_model(2)
    natural = {"transition": np.full((1, 1, 2, 2), 0.02) + 0.96 * np.eye(2), "mean": np.array([[[-50.0, 50.0]]])}
    posterior = Posterior.from_chains(model, chains_of(model, natural))
    samples = posterior.forecast(np.array([-50.0]), 30, draws=1, paths=2000).samples[:, :, 0] > 0
    changes = (samples[:, 1:] != samples[:, :-1]).mean()
    assert changes == pytest.approx(0.02, abs=0.003)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("where", ["memory", "file"])
def test_scores_of_counts_are_whole_likelihoods(tmp_path, where, missing):
    """What the kernel leaves out of a count's density is added to the stretch it belongs to."""
    model = HMM(2, Poisson(rate=dist.Gamma(2.0, 0.5)))
    params = {"transition": np.array([[0.9, 0.1], [0.2, 0.8]]), "rate": np.array([1.0, 8.0])}
    counts = simulate(model, params, 1000, seed=1)[1][:, 0].astype(np.float64)
    counts[[3, 500]] = np.nan if missing else 2.0
    np.save(tmp_path / "y.npy", counts)
    data = open_data(tmp_path / "y.npy" if where == "file" else counts)
    natural = {name: np.tile(value, (1, 2, *[1] * value.ndim)) for name, value in params.items()}
    posterior = Posterior.from_chains(model, chains_of(model, natural))
    found = posterior.score(data, draws=1, blocks=10)
    given = posterior.params_at(0, 0)
    ends = [log_likelihood(model, given, counts[:stop]) for stop in range(100, 1001, 100)]
    np.testing.assert_allclose(np.cumsum(found.blocks), ends, rtol=1e-9)
    assert found.n_observations == 1000 - 2 * missing
