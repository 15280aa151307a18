"""Positive numbers: natural parameters, default priors, and impossible values."""

from __future__ import annotations

import pytest

from longhmm import Gamma
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_natural_parameters_give_the_density() -> None:
    checks.natural_parameters_give_the_density("gamma-2d")


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(Gamma())


def test_impossible_values_are_reported() -> None:
    checks.impossible_value_is_reported(Gamma(), -1.0, "a Gamma emission needs a positive number")
