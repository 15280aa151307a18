"""What sampling needs of an emission is named where it is missing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

from longhmm import Emission
from longhmm.data.sequences import open_data
from longhmm.model.hmm import HMM
from longhmm.testing import check_coherence

TRANSITION = [[0.8, 0.2], [0.4, 0.6]]
LENGTHS = [4, 2]  # and two states throughout, so that one set of compiled programs serves all


class Logarithms(Emission):
    """Log-normal, written out; `support` is left at the real numbers, so that missing rows are filled with 0."""

    def __init__(self) -> None:
        super().__init__(None, mu=dist.Normal(0.0, 3.0), sigma=dist.LogNormal(0.0, 1.0))

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        z = (jnp.log(y)[..., None] - params["mu"]) / params["sigma"]
        return -0.5 * z**2 - jnp.log(params["sigma"]) - jnp.log(y)[..., None] - 0.5 * jnp.log(2 * jnp.pi)

    def sample(self, key: Any, params: Any, states: Any) -> jax.Array:
        noise = jax.random.normal(key, states.shape)
        return jnp.exp(params["mu"][states] + params["sigma"][states] * noise)[:, None]


class LogarithmsOfPositive(Logarithms):
    support = constraints.positive


class Overflows(LogarithmsOfPositive):
    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        huge = jnp.exp(120.0 + 0.0 * params["mu"])  # a number in double precision only
        return super().log_density(params, y) + jnp.log(huge) - 120.0


class ShortDraws(LogarithmsOfPositive):
    def sample(self, key: Any, params: Any, states: Any) -> jax.Array:
        return super().sample(key, params, states)[:, 0]


class WrongDraws(LogarithmsOfPositive):
    def sample(self, key: Any, params: Any, states: Any) -> jax.Array:
        return super().sample(key, {**params, "mu": params["mu"] + 0.3}, states)


class NoRows(LogarithmsOfPositive):
    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return jnp.sum(super().log_density(params, y), 0)  # an axis of states alone


class NoLocation(LogarithmsOfPositive):
    def location(self, params: Any) -> jax.Array:
        return jnp.log(-params["sigma"])


class Redundant(LogarithmsOfPositive):
    """Two parameters of which only the sum matters."""

    def __init__(self) -> None:
        flat = dist.ImproperUniform(constraints.real, (), ())
        Emission.__init__(self, None, mu=flat, more=flat, sigma=dist.LogNormal(0.0, 1.0))

    def log_density(self, params: Any, y: jax.Array) -> jax.Array:
        return super().log_density({**params, "mu": params["mu"] + params["more"]}, y)

    def sample(self, key: Any, params: Any, states: Any) -> jax.Array:
        return super().sample(key, {**params, "mu": params["mu"] + params["more"]}, states)


class Unused(LogarithmsOfPositive):
    def __init__(self) -> None:
        flat = dist.ImproperUniform(constraints.real, (), ())
        Emission.__init__(self, None, mu=dist.Normal(0.0, 3.0), sigma=dist.LogNormal(0.0, 1.0), more=flat)


class NoPriorNearby(LogarithmsOfPositive):
    def log_prior(self, params: Any) -> jax.Array:
        return super().log_prior(params) + jnp.sum(jnp.sqrt(params["mu"] - 0.2))


POSITIVE = np.exp(np.random.default_rng(0).normal(size=(6, 1)))


def test_a_density_of_logarithms_passes_once_its_support_is_set() -> None:
    params = {"transition": TRANSITION, "mu": [0.3, 1.5], "sigma": [0.5, 0.7]}
    check_coherence(HMM(2, LogarithmsOfPositive()), params, open_data(POSITIVE, lengths=LENGTHS))


@pytest.mark.parametrize(
    "emission, sentence",
    [
        (Logarithms, "respect to 'mu' must be finite where a row is missing .* set the class attribute support"),
        (Overflows, "in single precision"),
        (ShortDraws, r"Sample must give an array of shape \(4000, 1\)"),
        (WrongDraws, "Sample must draw from log_density"),
        (NoRows, r"must equal log_density where nothing is missing \(shapes \(6, 2\) and \(2,\)\)"),
        (NoLocation, "Location must give one number for each of the 2 states"),
        (Redundant, "say nothing about a combination of 'more' and 'mu'"),
        (Unused, "say nothing about 'more'"),
        (NoPriorNearby, "The log prior density must be a number near the given parameters"),
    ],
)
def test_what_sampling_needs_is_named(emission: type[Emission], sentence: str) -> None:
    """Each of these kept all identities, and ended sampling in an error of linear algebra, or in nonsense."""
    params = {"transition": TRANSITION, "mu": [0.3, 1.5], "sigma": [0.5, 0.7]}
    params |= {"more": [0.0, 0.0]} if "more" in emission().names else {}
    with pytest.raises(AssertionError, match=sentence):
        check_coherence(HMM(2, emission()), params, open_data(POSITIVE, lengths=LENGTHS))
