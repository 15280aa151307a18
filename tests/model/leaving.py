"""Two states whose logit of leaving is linear in a covariate, with a name by which they are stored."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import longhmm as lh
from longhmm.model.registry import TRANSITIONS
from longhmm.model.transitions import TransitionModel


@TRANSITIONS.register("leaving")
class Leaving(TransitionModel):
    """The logit of leaving each of two states is linear in one covariate."""

    n_states, n_covariates, shape = 2, 1, (2, 2)

    def __init__(self, sd: float = 3.0) -> None:
        self.sd = np.asarray(sd)

    def matrices(self, coefficients: jax.Array, covariates: jax.Array) -> jax.Array:
        leave = jax.nn.sigmoid(coefficients[:, 0] + coefficients[:, 1] * covariates)
        first, second = leave[..., 0], leave[..., 1]
        return jnp.stack([jnp.stack([1 - first, first], -1), jnp.stack([second, 1 - second], -1)], -2)

    def log_prior(self, coefficients: jax.Array) -> jax.Array:
        return jnp.sum(dist.Normal(0.0, self.sd).log_prob(coefficients))

    def options(self) -> dict[str, Any]:
        return {"sd": float(self.sd)}


MODEL = lh.HMM(2, lh.Gaussian(sd=1.0, mean=dist.Normal(0.0, 5.0)), transitions=Leaving())
PARAMS = {"coefficients": np.array([[-2.0, 1.0], [-1.5, -0.5]]), "mean": np.array([0.0, 4.0])}
