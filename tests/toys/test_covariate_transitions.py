"""Transitions that depend on a covariate, in one file: the logit of leaving a state is linear in it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm as lh
from longhmm.model.transitions import TransitionModel
from longhmm.target.resident_data import ExactPosterior


class Leaving(TransitionModel):
    n_states, n_covariates, shape = 2, 1, (2, 2)

    def matrices(self, coefficients, covariates):
        leave = jax.nn.sigmoid(coefficients[:, 0] + coefficients[:, 1] * covariates)
        stay = 1.0 - leave
        first = jnp.stack([stay[..., 0], leave[..., 0]], axis=-1)
        return jnp.stack([first, jnp.stack([leave[..., 1], stay[..., 1]], axis=-1)], axis=-2)

    def log_prior(self, coefficients):
        return jnp.sum(dist.Normal(0.0, 3.0).log_prob(coefficients))


MODEL = lh.HMM(2, lh.Gaussian(), transitions=Leaving())
COEFFICIENTS = np.array([[-2.0, 1.0], [-1.5, -0.5]])
PARAMS = {"coefficients": COEFFICIENTS, "mean": [0.0, 2.0], "sd": [1.0, 1.0]}


def matrices(covariate: np.ndarray) -> np.ndarray:
    leave = 1 / (1 + np.exp(-(COEFFICIENTS[:, 0] + COEFFICIENTS[:, 1] * covariate[:, None])))
    return np.stack([np.stack([1 - leave[:, 0], leave[:, 0]], 1), np.stack([leave[:, 1], 1 - leave[:, 1]], 1)], 1)


def test_likelihood_gradients_and_draws() -> None:
    rng, length = np.random.default_rng(1), 2000
    covariate, states = rng.normal(size=length), [0]
    for step in matrices(covariate)[1:]:
        states.append(int(rng.random() < step[states[-1], 1]))
    values = 2.0 * np.array(states) + rng.normal(size=length)
    data, message, total = lh.open_data(values, covariates=covariate), np.array([0.5, 0.5]), 0.0
    for t, step in enumerate(matrices(covariate)):
        message = (message @ step if t else message) * stats.norm.pdf(values[t], [0.0, 2.0])
        total, message = total + np.log(message.sum()), message / message.sum()
    assert lh.log_likelihood(MODEL, PARAMS, data) == pytest.approx(total, rel=1e-12)
    slope, model = lh.gradient(MODEL, PARAMS, data), MODEL.resolve(data)
    for index in range(4):
        ahead, behind = (
            lh.log_likelihood(
                MODEL, {**PARAMS, "coefficients": COEFFICIENTS + side * np.eye(4)[index].reshape(2, 2)}, data
            )
            for side in (1e-5, -1e-5)
        )
        prior = -COEFFICIENTS.ravel()[index] / 9.0
        assert slope["transition"][index] == pytest.approx((ahead - behind) / 2e-5 + prior, rel=1e-6, abs=1e-5)
    exact = ExactPosterior(model, data).log_density_and_gradient(lh.unconstrain(model, PARAMS))[1]
    for name, each in slope.items():
        np.testing.assert_allclose(exact[name], each, rtol=1e-9, atol=1e-9)
    posterior = lh.sample(MODEL, data, init=PARAMS, draws=60, seed=1, progress=False)
    draws = posterior.draws["coefficients"]
    assert np.all(np.abs(draws.mean(("chain", "draw")) - COEFFICIENTS) < 4.5 * draws.std(("chain", "draw")))
