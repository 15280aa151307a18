"""Shares between 0 and 1, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from model.emissions import checks

PARAMS = {"concentration1": np.array([2.0, 8.0]), "concentration0": np.array([9.0, 3.0])}


def law(k: int) -> object:
    return stats.beta(PARAMS["concentration1"][k], PARAMS["concentration0"][k])


def test_density_and_distribution_function_are_those_of_scipy() -> None:
    checks.density_and_distribution_function_are_those_of_scipy(lh.Beta(), PARAMS, law)


@pytest.mark.slow
def test_it_is_coherent_stored_and_refuses_other_numbers() -> None:
    checks.it_is_coherent_stored_and_refuses_other_numbers(lh.Beta(), PARAMS)


@pytest.mark.slow
def test_fits_recover_what_was_simulated() -> None:
    checks.fits_recover_what_was_simulated(lh.Beta(), PARAMS)
