"""Waiting times whose hazard rises or falls, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from model.emissions import checks

PARAMS = {"scale": np.array([10.0, 1.0]), "concentration": np.array([3.0, 0.8])}


def law(k: int) -> object:
    return stats.weibull_min(PARAMS["concentration"][k], scale=PARAMS["scale"][k])


def test_density_and_distribution_function_are_those_of_scipy() -> None:
    checks.density_and_distribution_function_are_those_of_scipy(lh.Weibull(), PARAMS, law)


def test_it_is_coherent_stored_and_refuses_other_numbers() -> None:
    checks.it_is_coherent_stored_and_refuses_other_numbers(lh.Weibull(), PARAMS)


@pytest.mark.slow
def test_fits_recover_what_was_simulated() -> None:
    checks.fits_recover_what_was_simulated(lh.Weibull(), PARAMS)
