"""States that share a level: columns, parameters, draws, default priors, and wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from longhmm import Gaussian, Poisson, Tied
from longhmm.errors import ModelError
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_tied_states_share_columns_and_parameters() -> None:
    tied, plain = Tied(Poisson(rate=dist.Gamma(1.0, 1.0)), levels=(1, 0, 1)), Poisson(rate=dist.Gamma(1.0, 1.0))
    params, y = {"rate": np.array([1.0, 6.0])}, np.arange(5.0)
    base = np.asarray(plain.log_density(params, y))
    np.testing.assert_array_equal(tied.log_density(params, y), base[:, [1, 0, 1]])
    np.testing.assert_array_equal(tied.location(params), [6.0, 1.0, 6.0])
    assert tied.parameters(3)["rate"].shape == (2,)
    assert float(tied.log_prior(params)) == pytest.approx(-7.0)
    draws = np.asarray(tied.sample(jax.random.key(0), params, np.repeat([0, 1], 4000)))
    assert draws[:4000].mean() == pytest.approx(6.0, abs=0.2) and draws[4000:].mean() == pytest.approx(1.0, abs=0.1)


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(Tied(Poisson(), (0, 0, 1)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tied(Gaussian(), (0, 2)), "levels must be one integer per state"),
        (lambda: Tied(Tied(Gaussian(), (0, 1)), (0, 1)), "not tied itself"),
        (lambda: Tied(Gaussian(), (0, 0, 1)).parameters(2), "levels has 3 entries"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


def test_impossible_values_are_reported() -> None:
    checks.impossible_value_is_reported(Tied(Poisson(), (0, 1, 1)), -1, "a Poisson emission needs")
