"""An autoregressive emission, in one file: nothing else knows of it."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.model.registry import EMISSIONS


@EMISSIONS.register("toy-autoregression")
class Autoregression(lh.Emission):
    """`y_t ~ Normal(const_k + phi_k y_{t-1}, scale_k)`; rows without a row before them say nothing."""

    lags = 1

    def __init__(self):
        super().__init__(None, const=dist.Normal(0, 5), phi=dist.Normal(0, 1), scale=dist.HalfNormal(3))

    def log_likelihoods(self, params, rows):
        known = rows.observed & ~jnp.isnan(rows.lags[..., 0])
        before, now = (jnp.where(known, each, 0.0) for each in (rows.lags[..., 0], rows.values))
        mean = params["const"] + params["phi"] * before
        return jnp.where(known, dist.Normal(mean, params["scale"]).log_prob(now), 0.0)

    def sample_after(self, key, params, states, before):
        mean = params["const"][states] + params["phi"][states] * jnp.nan_to_num(before.lags[:, 0, 0])
        return dist.Normal(mean, params["scale"][states]).sample(key)[:, None]


MODEL = lh.HMM(2, Autoregression())
PARAMS = {"transition": [[0.97, 0.03], [0.05, 0.95]], "const": [0.0, 2.0], "phi": [0.2, 0.7], "scale": [0.5, 0.8]}


def test_it_goes_through_the_whole_product(tmp_path):
    states, values = lh.simulate(MODEL, PARAMS, 3000, seed=1)
    values[500] = np.nan
    lh.testing.check_coherence(MODEL, PARAMS, values[495:505])
    logs = stats.norm.logpdf(values[1:], np.array(PARAMS["const"]) + PARAMS["phi"] * values[:-1], PARAMS["scale"])
    message = np.log([0.5, 0.5])
    for row in np.nan_to_num(logs):
        message = np.logaddexp.reduce(message[:, None] + np.log(PARAMS["transition"])) + row
    assert lh.log_likelihood(MODEL, PARAMS, values) == pytest.approx(np.logaddexp(*message), rel=1e-12)
    posterior = lh.sample(MODEL, values, draws=60, seed=1, progress=False)
    for name in ("const", "phi", "scale"):
        draws = posterior.draws[name]
        assert np.all(np.abs(draws.mean(("chain", "draw")) - PARAMS[name]) < 4.5 * draws.std(("chain", "draw")))
    assert np.mean(posterior.decode(values) == states) > 0.95
    ahead = posterior.forecast(values, 50).mean[-1, 0]  # far ahead: what is stationary
    assert abs(ahead - np.nanmean(values)) < 0.5 and np.isfinite(posterior.score(values, draws=3).log_density)
    posterior.save(tmp_path / "run")
    np.testing.assert_array_equal(lh.load(tmp_path / "run").draws["phi"], posterior.draws["phi"])
    np.save(tmp_path / "y.npy", values)
    command = f"fit {tmp_path}/y.npy --states 2 --emission toy-autoregression --draws 20 --out {tmp_path}/cli"
    assert CliRunner().invoke(app, command.split()).exit_code == 0
