"""Answers about models whose rows depend on covariates, on rows before them, or on two states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import longhmm as lh
from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.model.transitions import TransitionModel
from longhmm.posterior.diagnostics.drawn_path import DrawnPath
from longhmm.posterior.diagnostics.dwell_times import dwell_times
from longhmm.posterior.diagnostics.observations import residuals
from longhmm.posterior.diagnostics.transitions_by_time import judge_transitions, transitions_by_time
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.predict import last_state, predictions, predictive_log_prob
from posterior.fakes import chains_of


class Leaving(TransitionModel):
    """The logit of leaving each of two states is linear in one covariate."""

    n_states, n_covariates, shape = 2, 1, (2, 2)

    def matrices(self, coefficients: jax.Array, covariates: jax.Array) -> jax.Array:
        leave = jax.nn.sigmoid(coefficients[:, 0] + coefficients[:, 1] * covariates)
        first, second = leave[..., 0], leave[..., 1]
        return jnp.stack([jnp.stack([1 - first, first], -1), jnp.stack([second, 1 - second], -1)], -2)

    def log_prior(self, coefficients: jax.Array) -> jax.Array:
        return jnp.sum(dist.Normal(0.0, 3.0).log_prob(coefficients))


class Autoregression(lh.Emission):
    """`y_t ~ Normal(const_k + phi_k y_{t-1}, 1)`, from 0 where there is no row before."""

    lags = 1

    def __init__(self) -> None:
        super().__init__(None, const=dist.Normal(0, 5), phi=dist.Normal(0, 1))

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return dist.Normal(params["const"], 1.0).log_prob(y[..., None])

    def _mean(self, params: Any, lags: Any) -> jax.Array:
        return params["const"] + params["phi"] * jnp.nan_to_num(jnp.asarray(lags)[..., 0, 0])[..., None]

    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        return dist.Normal(self._mean(params, rows.lags), 1.0).log_prob(jnp.asarray(rows.values))

    def cdf_of_rows(self, params: Any, rows: Rows) -> Any:
        found = dist.Normal(self._mean(params, rows.lags), 1.0).cdf(jnp.asarray(rows.values))[..., None]
        return found, found

    def sample_after(self, key: Any, params: Any, states: Any, before: Any) -> jax.Array:
        mean = params["const"][states] + params["phi"][states] * jnp.nan_to_num(before.lags[:, 0, 0])
        return (mean + jax.random.normal(key, mean.shape))[:, None]


class Edges(lh.Emission):
    """`y_t ~ Normal(loc[x_t] + jump [x_{t-1} != x_t], 1)`."""

    couples = True

    def __init__(self) -> None:
        super().__init__(None, loc=dist.Normal(0, 5), jump=dist.Normal(0, 5))

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return dist.Normal(params["loc"], 1.0).log_prob(y[..., None])

    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        mean = params["loc"][None, :] + params["jump"][:, None] * (1.0 - jnp.eye(2))
        return dist.Normal(mean, 1.0).log_prob(jnp.asarray(rows.values)[..., None])


def certain(model: lh.HMM, params: dict[str, Any], draws: int = 2) -> Posterior:
    """A posterior with all its mass on one set of parameters."""
    complete = {"transition": np.eye(2), **{name: np.asarray(value, float) for name, value in params.items()}}
    natural = {name: np.tile(value, (1, draws, *[1] * value.ndim)) for name, value in complete.items()}
    return Posterior.from_chains(model, chains_of(model, natural), {"has_states": True})


MOVED = lh.HMM(2, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 5.0)), transitions=Leaving())
MOVED_PARAMS = {"coefficients": np.array([[-2.0, 1.5], [-1.5, -1.0]]), "mean": np.array([0.0, 2.0])}
CHAINED = lh.HMM(2, Autoregression())
CHAINED_PARAMS = {
    "transition": np.array([[0.95, 0.05], [0.1, 0.9]]),
    "const": np.array([0.0, 2.0]),
    "phi": np.array([0.7, 0.5]),
}


def moved_data(length: int, seed: int = 1) -> lh.data.sequences.Sequences:
    covariates = np.random.default_rng(seed).normal(size=length)
    return lh.open_data(
        lh.simulate(MOVED, MOVED_PARAMS, length, seed=seed, covariates=covariates)[1], covariates=covariates
    )


def filter_rows(matrices: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Filtering distributions and log normalisers, one row after the other from (1/2, 1/2)."""
    state, states, normalisers = np.full(2, 0.5), [], []
    for t, (matrix, log) in enumerate(zip(matrices, logs, strict=True)):
        joint = (state @ matrix if t else state) * np.exp(log)
        normalisers.append(np.log(joint.sum()))
        states.append(state := joint / joint.sum())
    return np.array(states), np.array(normalisers)


@pytest.fixture(scope="module")
def moved():
    data = moved_data(700)
    rows = data.rows(0, data.length)
    with jax.enable_x64(True):
        matrices = np.asarray(
            Leaving().matrices(jnp.asarray(MOVED_PARAMS["coefficients"]), jnp.asarray(rows.covariates))
        )
    logs = stats.norm.logpdf(rows.values.astype(float), MOVED_PARAMS["mean"], 1.0)
    return data, matrices, logs, *filter_rows(matrices, logs)


def test_scores_follow_covariates(moved):
    data, _, _, _, normalisers = moved
    found = certain(MOVED, MOVED_PARAMS).score(data, draws=2, blocks=7)
    np.testing.assert_allclose(found.blocks, normalisers.reshape(7, 100).sum(axis=1), rtol=1e-9)
    training, test = data.part(np.array([0, 500])), data.part(np.array([500, 700]))
    after = certain(MOVED, MOVED_PARAMS).score(test, draws=1, after=training)
    assert after.log_density == pytest.approx(normalisers[500:].sum(), rel=1e-9)


@pytest.mark.parametrize("steps", [1, 3])
def test_predictions_follow_covariates(moved, steps, monkeypatch):
    monkeypatch.setattr("longhmm.backends.read.COPIED_ROWS", 128)  # several blocks
    data, matrices, logs, states, normalisers = moved
    parts = list(predictions(MOVED, MOVED_PARAMS, data, steps))
    assert len(parts) > 2
    found = np.concatenate([part.states for part in parts])
    expected = states[:-steps]
    for step in range(steps):
        expected = np.einsum("nk,nkj->nj", expected, matrices[step + 1 : len(matrices) - steps + step + 1])
    np.testing.assert_allclose(found[steps:], expected, atol=1e-9)
    mean = predictive_log_prob(MOVED, MOVED_PARAMS, data, steps=steps).mean
    ahead = logsumexp(np.log(expected) + logs[steps:], axis=1)
    whole = np.append(ahead, normalisers[0]) if steps == 1 else ahead
    assert mean == pytest.approx(whole.mean(), rel=1e-9)


def test_states_events_and_occupancy_follow_covariates(moved):
    data, _, _, states, _ = moved
    posterior = certain(MOVED, MOVED_PARAMS)
    np.testing.assert_allclose(posterior.state_probabilities(data, causal=True), states, atol=1e-6)
    smoothed = lh.state_probabilities(MOVED, MOVED_PARAMS, data)
    np.testing.assert_allclose(posterior.dwell(data=data)["occupancy"], smoothed.mean(axis=0), atol=1e-5)
    path = posterior.decode(data)
    table = posterior.events(data)
    np.testing.assert_array_equal(np.repeat(table["state"], table["end"] - table["start"]), path)
    np.testing.assert_allclose(last_state(MOVED, MOVED_PARAMS, data), states[-1], atol=1e-9)


def test_checks_of_fit_follow_covariates(monkeypatch):
    """Right for the model that made the data, also in a part of them; wrong for one whose matrix is constant."""
    data = moved_data(12_000, seed=3)
    for most in (20_000, 5_000):
        left = residuals(MOVED, MOVED_PARAMS, data, most=most)
        assert left.distance_p_value[0] > 1e-3 and abs(left.autocorrelation[0]) < 4 * left.autocorrelation_error[0]
    # The covariate changes slowly, so that visits are short while it is high.
    slow = np.repeat(np.random.default_rng(0).normal(0.0, 2.0, size=240), 50)
    values = lh.simulate(MOVED, MOVED_PARAMS, len(slow), seed=2, covariates=slow)[1]
    varying = lh.open_data(values, covariates=slow)
    monkeypatch.setattr("longhmm.posterior.diagnostics.drawn_path.MOST_ROWS", 8_000)
    path = DrawnPath(MOVED, MOVED_PARAMS, varying)
    assert judge_transitions(path, {}) == [] and len(transitions_by_time(path)) == 2
    right = dwell_times(path)
    assert len(right) == 2 and min(one.p_value for one in right) > 1e-3
    constant = lh.HMM(2, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 5.0)))
    params = {"transition": [[0.8, 0.2], [0.25, 0.75]], "mean": MOVED_PARAMS["mean"]}
    wrong = dwell_times(DrawnPath(constant, params, varying))
    assert min(one.p_value for one in wrong) < 1e-6


def test_shared_levels_follow_covariates():
    """Chances to leave a level of tied states are the same as those of the states where every level is one."""
    from longhmm.posterior.diagnostics import dwell_times as module

    data = moved_data(400)
    path = lh.simulate(MOVED, MOVED_PARAMS, 400, seed=1, covariates=data.rows(0, 400).covariates)[0]
    params = MOVED.validate(MOVED_PARAMS)
    by_state = module._state_chances(MOVED, params, path, data)
    by_level = module._level_chances(MOVED, params, path, data)
    np.testing.assert_allclose(by_level[:-1], by_state[:-1], rtol=1e-9)


@pytest.fixture(scope="module")
def chained():
    return lh.simulate(CHAINED, CHAINED_PARAMS, 600, seed=5)[1].astype(np.float64)


def test_scores_look_back_into_the_data_before(chained):
    posterior = certain(CHAINED, CHAINED_PARAMS)
    whole, first = (lh.log_likelihood(CHAINED, CHAINED_PARAMS, each) for each in (chained, chained[:400]))
    found = posterior.score(chained[400:], draws=1, after=chained[:400])
    assert found.log_density == pytest.approx(whole - first, rel=1e-9)


def test_residuals_see_the_row_before(chained):
    left = residuals(CHAINED, CHAINED_PARAMS, lh.open_data(chained))
    assert left.distance_p_value[0] > 1e-3 and abs(left.autocorrelation[0]) < 4 * left.autocorrelation_error[0]
    plain = lh.HMM(2, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 5.0)))
    wrong = residuals(plain, {"transition": CHAINED_PARAMS["transition"], "mean": [0.0, 1.3]}, lh.open_data(chained))
    assert abs(wrong.autocorrelation[0]) > 4 * wrong.autocorrelation_error[0]


def test_forecasts_go_on_from_the_last_row(chained):
    params = {**CHAINED_PARAMS, "transition": np.eye(2) + 1e-6 * np.array([[-1, 1], [1, -1]])}
    y = np.append(chained, 8.0)
    found = certain(CHAINED, params).forecast(y, 2, draws=1, paths=4000)
    state = last_state(CHAINED, params, lh.open_data(y))
    first = CHAINED_PARAMS["const"] + CHAINED_PARAMS["phi"] * 8.0
    assert found.mean[0, 0] == pytest.approx(state @ first, abs=0.08)
    second = CHAINED_PARAMS["const"] + CHAINED_PARAMS["phi"] * first
    assert found.mean[1, 0] == pytest.approx(state @ second, abs=0.08)


def test_what_makes_no_sense_is_refused(chained, moved):
    posterior = certain(CHAINED, CHAINED_PARAMS)
    with pytest.raises(ModelError, match="steps must be 1 where observations depend on those before"):
        posterior.predictive_log_prob(chained, steps=2)
    assert np.isfinite(posterior.predictive_log_prob(chained, steps=1, draws=1).mean)
    with pytest.raises(ModelError, match="covariate"):
        certain(MOVED, MOVED_PARAMS).forecast(moved[0], 3)
    with pytest.raises(ModelError, match="depends on"):
        certain(MOVED, MOVED_PARAMS).score(np.zeros(5))


def test_pairs_of_states_have_scores_and_probabilities():
    """By enumeration of all paths of a short series, the state before the first row included."""
    model = lh.HMM(2, Edges())
    params = {
        "transition": np.array([[0.7, 0.3], [0.4, 0.6]]),
        "loc": np.array([0.0, 1.0]),
        "jump": np.array([1.0, -2.0]),
    }
    y = np.array([0.3, 1.5, -0.8, 2.0])
    logs = np.asarray(
        model.emission.log_likelihoods({k: jnp.asarray(v) for k, v in params.items()}, Rows(y[:, None], None))
    )
    paths = np.array(np.meshgrid(*[[0, 1]] * 5, indexing="ij")).reshape(5, -1).T
    steps = [
        np.log(params["transition"][paths[:, t], paths[:, t + 1]]) + logs[t, paths[:, t], paths[:, t + 1]]
        for t in range(4)
    ]
    weights = np.log(0.5) + sum(steps)
    posterior = certain(model, params)
    assert posterior.score(y, draws=1).log_density == pytest.approx(logsumexp(weights), rel=1e-6)
    share = np.exp(weights - logsumexp(weights))
    expected = [share @ (paths[:, t + 1] == 1) for t in range(4)]
    np.testing.assert_allclose(posterior.state_probabilities(y, draws=1)[:, 1], expected, atol=1e-5)
    begun = logsumexp(np.log(0.5) + sum(steps[:2])) - np.log(4)  # whatever the two steps that follow
    after = posterior.score(y[2:], after=y[:2], draws=1).log_density
    assert after == pytest.approx(logsumexp(weights) - begun, rel=1e-6)
    ahead = posterior.predictive_log_prob([y, y[:2]], steps=1, draws=1)
    assert (ahead.n_observations, ahead.mean) == (6, pytest.approx((logsumexp(weights) + begun) / 6, rel=1e-6))
    with pytest.raises(ModelError, match=r"steps must be 1 where .* or on two states, got 2 for HMM"):
        posterior.predictive_log_prob(y, steps=2, draws=1)
