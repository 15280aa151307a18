"""Positive numbers over orders of magnitude: default priors, and impossible values."""

from __future__ import annotations

import pytest

from longhmm import LogNormal
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(LogNormal(2))


def test_impossible_values_are_reported() -> None:
    checks.impossible_value_is_reported(LogNormal(), 0.0, "a LogNormal emission needs a positive number")
