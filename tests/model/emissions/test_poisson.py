"""Counts: natural parameters, default priors, wrong arguments and impossible values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpyro.distributions as dist
import pytest

from longhmm import Poisson
from longhmm.errors import ModelError
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_natural_parameters_give_the_density() -> None:
    checks.natural_parameters_give_the_density("poisson")


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(Poisson(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Poisson(rate=dist.Normal(0.0, 1.0)), "'rate' of Poisson needs a positive number"),
        (lambda: Poisson(0), "dim must be a whole number of at least 1"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


def test_impossible_values_are_reported() -> None:
    checks.impossible_value_is_reported(
        Poisson(), -3, "row 2 of counts.npy is -3, but a Poisson emission needs a non-negative integer"
    )
