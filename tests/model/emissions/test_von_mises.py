"""Angles: natural parameters, default priors, where the circle is cut, and impossible values."""

from __future__ import annotations

import numpy as np
import pytest

from longhmm import VonMises
from longhmm.model.emissions.von_mises import widest_gap
from longhmm.model.summary import summarise
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_natural_parameters_give_the_density() -> None:
    checks.natural_parameters_give_the_density("von-mises")


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(VonMises(2))


def test_directions_are_cut_where_there_are_no_data() -> None:
    around_pi = np.mod(np.random.default_rng(0).normal(np.pi, 0.3, 500) + np.pi, 2 * np.pi) - np.pi
    cut = widest_gap(summarise(around_pi).quantiles[0])
    assert abs(cut) < 1.0
    prior = VonMises().resolve(summarise(around_pi)).parameters(2)["loc"]
    assert np.all(np.asarray(prior.support(np.array([np.pi, np.pi + 0.5]))))  # type: ignore[misc]


def test_impossible_values_are_reported() -> None:
    checks.impossible_value_is_reported(VonMises(), 3.2, "a VonMises emission needs an angle between -pi and pi")


def test_half_a_turn_in_single_precision_is_an_angle() -> None:
    VonMises().check(np.array([[np.float32(np.pi)]], np.float32), np.ones((1, 1), bool), str)
