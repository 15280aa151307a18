"""Waiting times without memory, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from model.emissions import checks

PARAMS = {"rate": np.array([0.3, 4.0])}


def law(k: int) -> object:
    return stats.expon(scale=1 / PARAMS["rate"][k])


def test_density_and_distribution_function_are_those_of_scipy() -> None:
    checks.density_and_distribution_function_are_those_of_scipy(lh.Exponential(), PARAMS, law)


def test_it_is_coherent_stored_and_refuses_other_numbers() -> None:
    checks.it_is_coherent_stored_and_refuses_other_numbers(lh.Exponential(), PARAMS)


@pytest.mark.slow
def test_fits_recover_what_was_simulated() -> None:
    checks.fits_recover_what_was_simulated(lh.Exponential(), PARAMS)
