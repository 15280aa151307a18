"""A new kind of emission in one file: each state has an autoregression of its own."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import longhmm as lh
from longhmm.data.rows import Rows


class Autoregression(lh.Emission):
    """`y_t ~ Normal(const_k + phi_k y_{t-1}, scale_k)`; rows without a row before them say nothing."""

    lags = 1

    def __init__(self) -> None:
        super().__init__(None, const=dist.Normal(0, 5), phi=dist.Normal(0, 1), scale=dist.HalfNormal(3))

    def log_density(self, params, y):
        return self.log_likelihoods(
            params, Rows(y[..., None], jnp.ones((*y.shape, 1), bool), None, jnp.zeros((*y.shape, 1, 1)))
        )

    def log_likelihoods(self, params, rows):
        before, now = jnp.asarray(rows.lags)[..., 0, 0], jnp.asarray(rows.values)[..., 0]
        known = jnp.asarray(rows.observed)[..., 0] & ~jnp.isnan(before)
        before, now = jnp.where(known, before, 0.0), jnp.where(known, now, 0.0)
        mean = params["const"] + params["phi"] * before[..., None]
        return jnp.where(known[..., None], dist.Normal(mean, params["scale"]).log_prob(now[..., None]), 0.0)

    def location(self, params):
        return params["const"]


MODEL = lh.HMM(2, Autoregression())
PARAMS = {"transition": [[0.97, 0.03], [0.05, 0.95]], "const": [0.0, 2.0], "phi": [0.2, 0.7], "scale": [0.5, 0.8]}


def series(length: int = 3000) -> np.ndarray:
    plain = {"transition": PARAMS["transition"], "mean": [0.0, 0.0], "sd": [1.0, 1.0]}
    states, noise = lh.simulate(lh.HMM(2, lh.Gaussian()), plain, length, seed=1)
    values = np.zeros(length)
    for t in range(1, length):
        k = states[t]
        values[t] = PARAMS["const"][k] + PARAMS["phi"][k] * values[t - 1] + PARAMS["scale"][k] * noise[t, 0]
    return values


def test_it_goes_through_likelihoods_gradients_windows_and_sampling(tmp_path) -> None:
    values = series()
    values[500] = np.nan
    mean = np.array(PARAMS["const"]) + np.array(PARAMS["phi"]) * values[:-1, None]
    logs = np.vstack([np.zeros(2), np.nan_to_num(stats.norm.logpdf(values[1:, None], mean, PARAMS["scale"]))])
    message = np.log([0.5, 0.5]) + logs[0]
    for row in logs[1:]:
        message = logsumexp(message[:, None] + np.log(PARAMS["transition"]), axis=0) + row
    assert lh.log_likelihood(MODEL, PARAMS, values) == pytest.approx(logsumexp(message), rel=1e-12)
    np.save(tmp_path / "y.npy", values)
    assert lh.log_likelihood(MODEL, PARAMS, tmp_path / "y.npy") == pytest.approx(logsumexp(message), rel=1e-12)
    posterior = lh.sample(MODEL, values, init=PARAMS, draws=60, seed=1, progress=False)
    for name in ("const", "phi", "scale"):
        draws = posterior.draws[name]
        assert np.all(np.abs(draws.mean(("chain", "draw")) - PARAMS[name]) < 4.5 * draws.std(("chain", "draw")))
    assert posterior.decode(values).shape == values.shape
    assert np.isfinite(posterior.score(values, draws=3).log_density)
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(lh.load(tmp_path / "run", model=MODEL).draws["phi"], posterior.draws["phi"])
