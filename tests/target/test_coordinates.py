"""Densities of coordinates: the prior, its gradient, and the volume of the map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.target.coordinates import prior_gradient
from model.configurations import named
from target.references import Coordinates, differences, flat
from target.structured import PARAMS, PRIOR, STRUCTURED, random_transition


@pytest.mark.parametrize("name", ["gaussian-full-2d", "gamma-2d", "categorical", "von-mises", "tied"])
def test_prior_gradient(name: str) -> None:
    configuration = named(name)
    model = lh.HMM(configuration.n_states, configuration.emission, transition_prior=lh.Sticky(stay=5.0, move=0.5))
    space = Coordinates(model, {"transition": random_transition(configuration.n_states, 3), **configuration.params})
    with jax.enable_x64(True):
        coordinates = model.unconstrain({k: jnp.asarray(v) for k, v in space.to_natural(space.vector).items()})
        found = jax.jit(lambda at: prior_gradient(model, at))(coordinates)
    np.testing.assert_allclose(flat(found), differences(space.log_prior, space.vector), rtol=1e-7, atol=1e-8)


def test_the_prior_of_coordinates_is_the_natural_one_times_the_volume() -> None:
    """`log prior(u) - log prior(theta)` is the log determinant of the map to the free natural numbers."""
    space = Coordinates(STRUCTURED, PARAMS)

    def free(vector: np.ndarray) -> np.ndarray:
        natural = space.to_natural(vector)
        return np.concatenate([natural["transition"][0, :2], natural["transition"][2, :1], natural["loc"]])

    jacobian = np.array([differences(lambda at, row=row: free(at)[row], space.vector) for row in range(6)])
    volume = np.linalg.slogdet(jacobian)[1]
    apart = lh.log_prior(STRUCTURED, PARAMS) - lh.log_prior(STRUCTURED, PARAMS, unconstrained=False)
    np.testing.assert_allclose(apart, volume, rtol=1e-9)


def test_the_natural_prior_is_dirichlet_rows_times_the_emission_s() -> None:
    rows = stats.dirichlet.logpdf([0.7, 0.2, 0.1], PRIOR[0]) + stats.dirichlet.logpdf([0.4, 0.6], PRIOR[2, :2])
    expected = rows + stats.norm.logpdf(PARAMS["loc"], 0.0, 3.0).sum()
    np.testing.assert_allclose(lh.log_prior(STRUCTURED, PARAMS, unconstrained=False), expected, rtol=1e-12)
