"""Counts that vary more than Poisson ones: default priors, and impossible values."""

from __future__ import annotations

import pytest

from longhmm import NegativeBinomial
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(NegativeBinomial())


def test_impossible_values_are_reported() -> None:
    checks.impossible_value_is_reported(
        NegativeBinomial(), 0.5, "is 0.5, but a NegativeBinomial emission needs a non-negative integer"
    )
