"""Labels without order: their number, default priors, wrong arguments and impossible values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest

from longhmm import Categorical
from longhmm.errors import ModelError
from longhmm.model.summary import summarise
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_number_of_categories_comes_from_the_prior_or_the_data() -> None:
    assert Categorical(probs=dist.Dirichlet(np.ones(5))).parameters(2)["probs"].shape == (2, 5)
    assert Categorical().resolve(summarise(np.array([0.0, 3.0, np.nan]))).parameters(2)["probs"].shape == (2, 4)


def test_a_number_of_categories_that_is_not_known_is_asked_for() -> None:
    with pytest.raises(ModelError, match="number of categories is not known"):
        Categorical().parameters(2)
    with pytest.raises(ModelError, match="needs categories 0, 1, 2"):
        Categorical().resolve(summarise(np.array([0.5, 1.0])))


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(Categorical(), shapes_known=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Categorical(3, probs=dist.Dirichlet(np.ones(4))), "prior of 'probs' has shape"),
        (lambda: Categorical(0), "n_categories must be a whole number of at least 1"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "a Categorical emission needs an integer from 0 to 2"),
        (0.5, "an integer from 0 to 2"),
    ],
)
def test_impossible_values_are_reported(value: float, message: str) -> None:
    checks.impossible_value_is_reported(Categorical(3), value, message)


def test_groups_are_fitted_with_a_probability_for_every_category() -> None:
    emission = Categorical(3).resolve(summarise(np.array([0, 1, 2])))
    groups = [np.array([[0.0], [0.0], [np.nan], [1.0]]), np.array([[2.0]])]
    np.testing.assert_allclose(emission.fit(groups)["probs"], [[3 / 6, 2 / 6, 1 / 6], [1 / 4, 1 / 4, 2 / 4]])  # type: ignore[index]
