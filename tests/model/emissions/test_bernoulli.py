"""Zeros and ones: natural parameters, default priors, and impossible values with their feature."""

from __future__ import annotations

import numpy as np
import pytest

from longhmm import Bernoulli
from longhmm.errors import DataError
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_natural_parameters_give_the_density() -> None:
    checks.natural_parameters_give_the_density("bernoulli-3d")


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(Bernoulli())


def test_impossible_values_are_reported() -> None:
    checks.impossible_value_is_reported(Bernoulli(), 2, "a Bernoulli emission needs 0 or 1")


def test_the_feature_of_an_impossible_value_is_named() -> None:
    with pytest.raises(DataError, match="row 0 is 4 in feature 1, but a Bernoulli"):
        Bernoulli(2).check(np.array([[1, 4]]), np.ones((1, 2), bool), lambda row: f"row {row}")
