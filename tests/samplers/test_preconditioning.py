"""Complete-data information against formulas, and preconditioners made of it."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.samplers.preconditioning import (
    EmissionBlocks,
    Given,
    Identity,
    InverseInformation,
    information,
    inverse_factor,
    pilot,
)
from samplers.targets import coordinates_of
from toys.leaving import MODEL, PARAMS, simulated

WINDOWS = lh.Windows(5, 20)


def test_information_of_a_gaussian_is_known():
    """One state, all data in the pilot: the sum of squared scores of (loc, log scale), one average more, the prior."""
    y = np.random.default_rng(0).normal(1.0, 2.0, 5000).astype(np.float32)
    emission = lh.Emission(dist.Normal, loc=dist.Normal(0, 100), scale=dist.LogNormal(0, 10))
    model, params = lh.HMM(1, emission), {"transition": [[1.0]], "loc": [1.0], "scale": [2.0]}
    bound = lh.Buffered(WINDOWS, lh.FixedBuffer(0)).bind(model, lh.open_data(y), params)
    at = coordinates_of(model, params)
    found = np.asarray(information(model, EmissionBlocks.like(at), at, pilot(bound)).emission[0])
    residual = y.astype(np.float64) - 1.0
    scores = np.stack([residual / 4, residual**2 / 4 - 1], axis=1)
    expected = (1 + 1 / 5000) * scores.T @ scores + np.diag([1e-4, 1e-2])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(np.diag(found), [5000 / 4, 2 * 5000], rtol=0.1)  # n / variance and 2 n
    factor = np.asarray(inverse_factor(jnp.asarray(found)))
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(found), rtol=1e-3, atol=1e-7)


def test_information_adds_the_prior():
    emission = lh.Emission(dist.Normal, loc=dist.Normal(0, 0.01), scale=1.0)
    model, params = lh.HMM(1, emission), {"transition": [[1.0]], "loc": [0.0]}
    bound = lh.Buffered(lh.Windows(2, 2), lh.FixedBuffer(0)).bind(model, lh.open_data(np.zeros(20)), params)
    at = coordinates_of(model, params)
    found = information(model, EmissionBlocks.like(at), at, pilot(bound)).emission
    np.testing.assert_allclose(found[0, 0, 0], 1e4, rtol=1e-3)


def test_flat_preconditioners():
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "mean": [[0.0, 1.0], [3.0, 2.0]], "covariance": [np.eye(2)] * 2}
    y = lh.simulate(lh.HMM(2, lh.Gaussian(2)), params, 2000, seed=1)[1]
    model = lh.HMM(2, lh.Gaussian(2)).resolve(y)
    bound = lh.Buffered(WINDOWS, lh.FixedBuffer(4)).bind(model, lh.open_data(y), params)
    at = coordinates_of(model, params)
    size = sum(value.size for value in at.values())
    assert np.array_equal(Identity().factor(bound, at), np.ones(size))
    np.testing.assert_allclose(Given(4.0).factor(bound, at), np.full(size, 2.0))
    np.testing.assert_allclose(Given(9.0 * np.eye(size)).factor(bound, at), 3.0 * np.eye(size), rtol=1e-6)
    factor = np.asarray(InverseInformation().factor(bound, at), np.float64)
    assert factor.shape == (size, size) and np.linalg.matrix_rank(factor) == size
    # 2000 observations: posterior standard deviations of a few hundredths.
    widths = np.sqrt(np.diag(factor @ factor.T))
    assert widths.min() > 0.01 and widths.max() < 0.3
    for wrong in (-1.0, {"mean": 1.0}, np.diag([-1.0] + [1.0] * (size - 1)), np.ones(3)):
        with pytest.raises(ModelError, match="value must"):
            Given(wrong).factor(bound, at)


def test_information_about_transitions_that_follow_a_covariate():
    """Of known states it is that of two logistic regressions, up to the first rows of windows, and the prior's 1/9."""
    covariate = np.sin(np.arange(5000) / 9)
    states = np.cumsum(np.random.default_rng(2).random(5000) < 0.2) % 2
    values = simulated(covariate, 1).rows(0, 5000).values
    data = lh.open_data(values, states=states, covariates=covariate)
    model = MODEL.resolve(data)
    bound = lh.Buffered(WINDOWS, lh.FixedBuffer(0)).bind(model, data, PARAMS)
    at = coordinates_of(model, PARAMS)
    found = np.asarray(information(model, EmissionBlocks.like(at), at, pilot(bound)).transition)
    expected = np.eye(4) / 9
    for state, (constant, slope) in enumerate(PARAMS["coefficients"]):
        leave = 1 / (1 + np.exp(-(constant + slope * covariate[1:])))
        weights = leave * (1 - leave) * (states[:-1] == state)
        design = np.stack([np.ones(4999), covariate[1:]])
        own = slice(2 * state, 2 * state + 2)
        expected[own, own] += (design * weights) @ design.T
    np.testing.assert_allclose(found, expected, atol=0.03 * np.diag(expected).max())
    factor = np.asarray(InverseInformation().factor(bound, at))
    place = slice(factor.shape[0] - 4, None)  # names are sorted: the transitions come last
    np.testing.assert_allclose(factor[place, place] @ factor[place, place].T, np.linalg.inv(found), rtol=2e-3)
