"""Models whose rows depend on covariates or on rows before them: simulation, storage, ties and forecasts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.data.rows import Rows
from longhmm.errors import ModelError
from longhmm.posterior.posterior import Posterior
from model.leaving import MODEL, PARAMS
from posterior.fakes import chains_of


class Autoregression(lh.Emission):
    """`y_t ~ Normal(const_k + phi_k y_{t-1}, 1)`, from 0 where there is no row before."""

    lags = 1

    def __init__(self) -> None:
        super().__init__(None, const=dist.Normal(0, 5), phi=dist.Normal(0, 1))

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return dist.Normal(params["const"], 1.0).log_prob(y[..., None])

    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        before = jnp.nan_to_num(jnp.asarray(rows.lags)[..., 0, 0])[..., None]
        return dist.Normal(params["const"] + params["phi"] * before, 1.0).log_prob(jnp.asarray(rows.values))

    def sample_after(self, key: Any, params: Any, states: Any, before: Any) -> jax.Array:
        mean = params["const"][states] + params["phi"][states] * jnp.nan_to_num(before.lags[:, 0, 0])
        return (mean + jax.random.normal(key, mean.shape))[:, None]


def leaving(covariate: float) -> np.ndarray:
    return 1 / (1 + np.exp(-(PARAMS["coefficients"] @ [1.0, covariate])))


def test_states_leave_as_the_covariate_says() -> None:
    covariates = np.resize([0.0, 2.0], 70_000)  # more than one piece
    states, values = lh.simulate(MODEL, PARAMS, 70_000, seed=1, covariates=covariates)
    for covariate in (0.0, 2.0):
        for state in (0, 1):
            here = np.flatnonzero((covariates[1:] == covariate) & (states[:-1] == state))
            left, chance = np.mean(states[here + 1] != state), leaving(covariate)[state]
            assert abs(left - chance) < 4 * np.sqrt(chance * (1 - chance) / len(here))
    assert abs(values[states == 1].mean() - 4.0) < 4 / np.sqrt(np.sum(states == 1))
    shorter = lh.simulate(MODEL, PARAMS, 100, seed=1, covariates=covariates[:100])
    np.testing.assert_array_equal(shorter[0], states[:100])
    np.testing.assert_array_equal(shorter[1], values[:100])


@pytest.mark.parametrize("wrong", [None, np.zeros(99), np.zeros((100, 2)), np.full(100, np.nan)])
def test_covariates_that_do_not_fit_are_refused(wrong: Any) -> None:
    with pytest.raises(ModelError, match=r"covariates must be finite numbers of shape \(100, 1\)"):
        lh.simulate(MODEL, PARAMS, 100, covariates=wrong)


def test_rows_follow_the_rows_before_them() -> None:
    params = {"transition": [[0.95, 0.05], [0.1, 0.9]], "const": np.array([0.0, 3.0]), "phi": np.array([0.8, -0.5])}
    model = lh.HMM(2, Autoregression())
    states, values = lh.simulate(model, params, [4000, 3000], seed=2)
    assert [len(each) for each in values] == [4000, 3000]
    x, y = states[0], values[0][:, 0]
    for state in (0, 1):
        here = np.flatnonzero(x[1:] == state) + 1
        noise = y[here] - params["const"][state] - params["phi"][state] * y[here - 1]
        assert abs(noise.mean()) < 4 / np.sqrt(len(here))
        assert noise.std() == pytest.approx(1.0, abs=4 / np.sqrt(2 * len(here)))
        assert abs(np.corrcoef(noise, y[here - 1])[0, 1]) < 4 / np.sqrt(len(here))
    tied = lh.HMM(3, lh.Tied(Autoregression(), (0, 1, 0)))
    rows = lh.open_data(y).rows(0, 50, tied.lags)
    arrays = {name: jnp.asarray(value) for name, value in params.items()}
    np.testing.assert_array_equal(
        tied.emission.log_likelihoods(arrays, rows), model.emission.log_likelihoods(arrays, rows)[:, [0, 1, 0]]
    )


def test_forecasts_follow_future_covariates() -> None:
    natural = {name: np.tile(value, (1, 3, *[1] * value.ndim)) for name, value in PARAMS.items()}
    natural["transition"] = np.tile(np.eye(2), (1, 3, 1, 1))
    posterior = Posterior.from_chains(MODEL, chains_of(MODEL, natural))
    data = lh.open_data(np.array([0.0, 0.1, 4.0]), covariates=np.zeros(3))
    ahead = np.array([2.0, -1.0, 0.5])
    found = posterior.forecast(data, 3, draws=1, paths=4000, covariates=ahead)
    law = lh.state_probabilities(MODEL, PARAMS, data, causal=True)[-1]
    for step, covariate in enumerate(ahead):
        out = leaving(covariate)
        law = law @ np.array([[1 - out[0], out[0]], [out[1], 1 - out[1]]])
        np.testing.assert_allclose(found.state_probabilities[step], law, rtol=1e-5)
        assert abs(found.mean[step, 0] - 4.0 * law[1]) < 4 * found.sd[step, 0] / np.sqrt(4000)
    with pytest.raises(ModelError, match="covariates must be"):
        posterior.forecast(data, 3)


class SecondBefore(Autoregression):
    """The same, from two rows before."""

    lags = 2

    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        return super().log_likelihoods(params, rows._replace(lags=jnp.asarray(rows.lags)[..., 1:, :]))


def test_every_stream_sees_its_own_lags() -> None:
    values = np.random.default_rng(3).normal(size=(30, 2))
    model = lh.HMM(2, lh.Product(near=Autoregression(), far=SecondBefore()))
    rows = lh.open_data(values).rows(0, 30, model.lags)
    own = {"const": jnp.array([0.0, 1.0]), "phi": jnp.array([0.5, -0.5])}
    params = {f"{stream}_{name}": value for stream in ("near", "far") for name, value in own.items()}
    near = Autoregression().log_likelihoods(own, lh.open_data(values[:, 0]).rows(0, 30, 1))
    far = SecondBefore().log_likelihoods(own, lh.open_data(values[:, 1]).rows(0, 30, 2))
    np.testing.assert_allclose(model.emission.log_likelihoods(params, rows), near + far, rtol=1e-6)


class Jump(lh.Emission):
    """`y_t ~ Normal(loc_j, 1)`, raised by `jump` where the state before was another one."""

    couples = True

    def __init__(self) -> None:
        super().__init__(None, loc=dist.Normal(0, 5), jump=dist.Normal(0, 5))

    def log_likelihoods(self, params: Any, rows: Rows) -> jax.Array:
        mean = params["loc"] + params["jump"] * (1.0 - jnp.eye(2))
        return dist.Normal(mean, 1.0).log_prob(jnp.asarray(rows.values)[..., None])

    def sample_after(self, key: Any, params: Any, states: Any, before: Any) -> jax.Array:
        mean = params["loc"][states] + params["jump"][states] * (states != before.states)
        return (mean + jax.random.normal(key, mean.shape))[:, None]


@pytest.mark.slow
def test_rows_are_drawn_given_the_state_before_them() -> None:
    """Also the first row of a sequence, whose state before it comes from `initial`."""
    model = lh.HMM(2, Jump(), initial=[1.0, 0.0])
    params = {"transition": [[0.7, 0.3], [0.4, 0.6]], "loc": [0.0, 3.0], "jump": [2.0, -5.0]}
    states, values = lh.simulate(model, params, 20_000, seed=4)
    before = np.concatenate([[0], states[:-1]])
    for one, other, mean in ((0, 0, 0.0), (1, 0, 2.0), (0, 1, -2.0), (1, 1, 3.0)):
        rows = values[(before == one) & (states == other)]
        assert abs(rows.mean() - mean) < 5 / np.sqrt(len(rows))
    firsts = lh.simulate(model, params, [1] * 60, seed=5)
    moved = np.concatenate(firsts[0]) == 1
    assert 0 < moved.sum() < 60 and abs(np.concatenate(firsts[1])[moved].mean() + 2.0) < 5 / np.sqrt(moved.sum())
