"""Transitions that depend on a covariate, in one file: the logit of leaving a state is linear in it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import stats
from scipy.special import expit
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel
from longhmm.posterior.run_directory import RunDirectory


@TRANSITIONS.register("toy-leaving")
class Leaving(TransitionModel):
    n_states, n_covariates, shape = 2, 1, (2, 2)

    def matrices(self, coefficients, covariates):
        leave = jax.nn.sigmoid(coefficients[:, 0] + coefficients[:, 1] * covariates)
        stay = jnp.eye(2) * (1.0 - leave)[..., None]
        return stay + (1.0 - jnp.eye(2)) * leave[..., None]

    def log_prior(self, coefficients):
        return jnp.sum(dist.Normal(0.0, 3.0).log_prob(coefficients))


MODEL = lh.HMM(2, lh.Gaussian(), transitions=Leaving())
PARAMS = {"coefficients": np.array([[-2.0, 1.0], [-1.5, -0.5]]), "mean": [0.0, 2.0], "sd": [1.0, 1.0]}


def test_it_goes_through_the_whole_product(tmp_path):
    covariate = np.random.default_rng(1).normal(size=2000)
    states, values = lh.simulate(MODEL, PARAMS, 2000, seed=1, covariates=covariate)
    data, start = lh.open_data(values, covariates=covariate), PARAMS["coefficients"]
    lh.testing.check_coherence(MODEL, PARAMS, lh.open_data(values[:10], covariates=covariate[:10]))
    leave, message, total = expit(start[:, 0] + start[:, 1] * covariate[:, None]), np.array([0.5, 0.5]), 0.0
    for t, out in enumerate(leave):
        message = message @ [[1 - out[0], out[0]], [out[1], 1 - out[1]]] if t else message
        message = message * stats.norm.pdf(values[t], PARAMS["mean"])
        total, message = total + np.log(message.sum()), message / message.sum()
    np.testing.assert_allclose(lh.log_likelihood(MODEL, PARAMS, data), total, rtol=1e-12)
    slope, step = lh.gradient(MODEL, PARAMS, data, prior=False)["transition"], 1e-5 * np.eye(4).reshape(4, 2, 2)
    at = [[lh.log_likelihood(MODEL, {**PARAMS, "coefficients": start + s * h}, data) for s in (1, -1)] for h in step]
    np.testing.assert_allclose(slope, np.subtract(*np.transpose(at)) / 2e-5, rtol=1e-6, atol=1e-4)
    draws = (posterior := lh.sample(MODEL, data, draws=60, seed=1, progress=False)).draws["coefficients"]
    assert np.all(np.abs(draws.mean(("chain", "draw")) - start) < 4.5 * draws.std(("chain", "draw")))
    assert np.mean(posterior.decode(data) == states) > 0.85 and np.isfinite(posterior.score(data, draws=3).log_density)
    ahead = posterior.forecast(data, 2, covariates=np.array([50.0, 0.0])).state_probabilities
    assert ahead[0, 1] > 0.95  # 50: state 0 is left, state 1 kept
    np.savetxt(tmp_path / "y.csv", np.column_stack([values, covariate]), delimiter=",", header="y,x", comments="")
    asked = {"recordings": [f"{tmp_path}/y.csv"], "columns": ["y"], "covariates": ["x"]}
    run = RunDirectory.create(tmp_path / "run", asked | {"preprocessing": {}, "model": {}, "sample": {}})
    run.save(posterior)
    np.testing.assert_array_equal(lh.load(run.path).draws["coefficients"], draws)
    assert CliRunner().invoke(app, f"decode {run.path} --out {tmp_path}/events.csv".split()).exit_code == 0
