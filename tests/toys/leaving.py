"""Two states whose logit of leaving is linear in a covariate."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import longhmm as lh
from longhmm.data.sequences import Sequences
from longhmm.model.transitions import TransitionModel


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
PARAMS = {"coefficients": np.array([[-2.5, 1.5], [-2.0, -1.0]]), "mean": [0.0, 1.5], "sd": [1.0, 1.0]}


def simulated(covariate: np.ndarray, seed: int) -> Sequences:
    """Observations that follow the model at `PARAMS`."""
    rng, states = np.random.default_rng(seed), [0]
    for step in np.asarray(MODEL.transitions.matrices(PARAMS["coefficients"], covariate[:, None]))[1:]:
        states.append(int(rng.random() < step[states[-1], 1]))
    return lh.open_data(1.5 * np.array(states) + rng.normal(size=len(states)), covariates=covariate)
