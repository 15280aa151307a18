"""Regions in words, and angles: the way round, means, and coordinates that begin at a cut."""

import jax
import numpy as np
import pytest
from numpyro.distributions import biject_to, constraints

from longhmm.model.support import Turn, in_words, mean_direction, unwrapped, wrapped

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize(
    ("support", "words"),
    [
        (constraints.positive, "a positive number"),
        (constraints.nonnegative_integer, "a non-negative integer"),
        (constraints.circular, "an angle between -pi and pi"),
        (constraints.integer_interval(0, 8), "an integer from 0 to 8"),
        (constraints.interval(-1.0, 2.5), "a number from -1 to 2.5"),
        (constraints.greater_than(3.0), "a number above 3"),
        (constraints.less_than(3.0), "a number below 3"),
        (constraints.simplex, "a vector of non-negative shares that sum to one"),
    ],
)
def test_regions_in_words(support, words):
    assert in_words(support) == words


def test_angles_are_told_within_one_turn():
    np.testing.assert_allclose(wrapped(np.array([0.5, np.pi, -np.pi, 4.0, -9.0])), [0.5, np.pi, np.pi, 4.0 - 2 * np.pi,
                               -9.0 + 2 * np.pi])  # fmt: skip
    around_pi = np.array([3.0, -3.0, 3.1, -3.1])
    assert abs(mean_direction(around_pi, (0,))) == pytest.approx(np.pi)
    assert np.ptp(unwrapped(around_pi, (0,))) == pytest.approx(2 * (np.pi - 3.0))


def test_coordinates_of_an_angle_go_once_around_from_the_cut():
    way = biject_to(Turn(2.0))
    u = np.linspace(-6.0, 6.0, 25)
    angles = np.asarray(way(u))
    np.testing.assert_allclose(way.inv(angles), u, rtol=1e-8, atol=1e-8)
    assert np.all(np.diff(np.mod(angles - 2.0, 2 * np.pi)) > 0)
    volume = np.log(np.abs(jax.vmap(jax.grad(way))(u)))
    np.testing.assert_allclose(way.log_abs_det_jacobian(u, angles), volume, rtol=1e-9)
    np.testing.assert_allclose(way(way.inv(angles + 2 * np.pi)), angles, rtol=1e-8, atol=1e-8)  # the same angle
