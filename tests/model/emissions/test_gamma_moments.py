"""Gamma distributions by mean and standard deviation, against SciPy and against those by concentration and rate."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm as lh
from longhmm.errors import ModelError
from model.emissions import checks

PARAMS = {"mean": np.array([0.3, 5.0]), "sd": np.array([0.2, 3.0])}


def law(k: int) -> object:
    return stats.gamma((PARAMS["mean"][k] / PARAMS["sd"][k]) ** 2, scale=PARAMS["sd"][k] ** 2 / PARAMS["mean"][k])


def test_density_and_distribution_function_are_those_of_scipy() -> None:
    checks.density_and_distribution_function_are_those_of_scipy(lh.GammaMoments(), PARAMS, law)


@pytest.mark.slow
def test_it_is_coherent_stored_and_refuses_other_numbers() -> None:
    checks.it_is_coherent_stored_and_refuses_other_numbers(lh.GammaMoments(), PARAMS)


@pytest.mark.slow
def test_fits_recover_what_was_simulated() -> None:
    checks.fits_recover_what_was_simulated(lh.GammaMoments(), PARAMS)


def test_a_gamma_of_moments_is_that_of_concentration_and_rate() -> None:
    """In the kernel, and in every derivative, by the chain rule."""
    mean, sd = np.array([0.4, 6.0]), np.array([0.3, 2.0])
    natural = {"transition": checks.MOVES, "concentration": (mean / sd) ** 2, "rate": mean / sd**2}
    plain, moments = lh.HMM(2, lh.Gamma()), lh.HMM(2, lh.Gamma(mean=dist.LogNormal(0.0, 3.0)))
    assert type(moments.emission) is lh.GammaMoments and moments.emission.lowering is not None
    y = lh.simulate(plain, natural, 400, seed=2)[1]
    params = {"transition": checks.MOVES, "mean": mean, "sd": sd}
    assert lh.log_likelihood(moments, params, y) == pytest.approx(lh.log_likelihood(plain, natural, y), rel=1e-12)
    slope, own = lh.gradient(moments, params, y, prior=False), lh.gradient(plain, natural, y, prior=False)
    # log concentration = 2 (log mean - log sd), log rate = log mean - 2 log sd
    np.testing.assert_allclose(slope["mean"], 2 * own["concentration"] + own["rate"], rtol=1e-9)
    np.testing.assert_allclose(slope["sd"], -2 * own["concentration"] - 2 * own["rate"], rtol=1e-9)
    step = 1e-5 * np.array([1.0, 0.0])
    high, low = (lh.log_likelihood(moments, {**params, "mean": mean * np.exp(way * step)}, y) for way in (1, -1))
    assert slope["mean"][0] == pytest.approx((high - low) / 2e-5, rel=1e-6)
    with pytest.raises(ModelError, match="Gamma has either mean and sd or rate"):
        lh.Gamma(mean=1.0, rate=2.0)
