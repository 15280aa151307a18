"""Fits of single groups of rows: priors of single states choose the groups that suit them, flat ones need no draw."""

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

import longhmm as lh
from longhmm.model.initialise import initial_params


def two_levels(n: int = 2000, low: float = -4.0, high: float = 4.0) -> np.ndarray:
    states = np.repeat(np.arange(n // 20) % 2, 20)
    return np.where(states == 1, high, low) + np.random.default_rng(1).normal(size=n)


def test_per_state_priors_receive_the_groups_that_suit_them():
    emission = lh.Emission(dist.Normal, loc=dist.Normal(np.array([4.0, -4.0]), 1.0), scale=dist.HalfNormal(2.0))
    for start in initial_params(lh.HMM(n_states=2, emission=emission), two_levels(), restarts=2):
        np.testing.assert_allclose(start["loc"], [4.0, -4.0], atol=0.4)


def test_a_flat_prior_needs_no_draw():
    emission = lh.Emission(dist.Normal, loc=dist.ImproperUniform(constraints.real, (), ()), scale=dist.HalfNormal(5.0))
    (start,) = initial_params(lh.HMM(n_states=2, emission=emission), two_levels(), restarts=1)
    np.testing.assert_allclose(start["loc"], [-4.0, 4.0], atol=0.4)
    assert not jax.config.jax_enable_x64
