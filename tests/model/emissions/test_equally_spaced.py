"""Levels with one distance: distributions of the states, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import longhmm as lh

RATES = np.array([3.0, 5.0])
PAIR = lh.Channels(2, "C <-> O", dt=0.05)
PARAMS = {"rates": RATES, "base": [0.5], "step": [1.0], "sd": [0.2, 0.25, 0.3]}


def test_distributions_of_levels():
    emission = lh.EquallySpaced(PAIR.levels)
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value, float) for name, value in PARAMS.items()}
        values = jnp.asarray([[0.4], [2.2]])
        mean, sd = 0.5 + np.arange(3), np.array(PARAMS["sd"])
        np.testing.assert_allclose(
            emission.log_density(params, values), stats.norm.logpdf(values, mean, sd), rtol=1e-12
        )
        np.testing.assert_allclose(emission.cdf(params, values)[0][..., 0], stats.norm.cdf(values, mean, sd), rtol=1e-9)
