"""Emissions and priors as names and numbers, and back; nothing unknown is ever called."""

import json

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

from longhmm import Emission, Gaussian, Poisson
from longhmm.errors import ModelError
from longhmm.model.serialise import emission_from_config, emission_to_config
from model.configurations import named, names

EVERY = pytest.mark.parametrize("name", names())
pytestmark = pytest.mark.usefixtures("double_precision")


@EVERY
def test_description_rebuilds_the_emission(name: str) -> None:
    configuration = named(name)
    emission, params = configuration.emission, configuration.params
    if name.startswith("user-"):
        with pytest.raises(ModelError, match="pass it again when loading"):
            emission_to_config(emission)
        return
    config = json.loads(json.dumps(emission_to_config(emission)))
    again = emission_from_config(config)
    assert type(again) is type(emission) and repr(again) == repr(emission)
    prior, expected_prior = jax.jit(lambda chosen: (again.log_prior(chosen), emission.log_prior(chosen)))(params)
    assert float(prior) == pytest.approx(float(expected_prior), rel=1e-14, abs=1e-14)
    assert emission_to_config(again) == config


def test_stored_names_are_never_more_than_names() -> None:
    for bad in ({"family": "os"}, {"family": ["gaussian"]}, {"family": "poisson", "options": {"wings": 2}},
                {"family": "distribution", "options": {"distribution": {"distribution": "enable_validation"}}},
                {"family": "distribution", "options": {"distribution": {"distribution": "__class__"}}},
                {"family": "distribution", "options": {}}):  # fmt: skip
        with pytest.raises(ModelError, match="The stored emission"):
            emission_from_config(bad)
    config = emission_to_config(Poisson(rate=dist.Gamma(1.0, 2.0)))
    config["parameters"]["rate"]["prior"]["distribution"] = "eval"
    with pytest.raises(ModelError, match="The stored prior 'eval'"):
        emission_from_config(config)
    unknown = Gaussian(mean=dist.SoftLaplace(0.0, 1.0))
    with pytest.raises(ModelError, match="prior of 'mean' is a SoftLaplace"):
        emission_to_config(unknown)


@pytest.mark.parametrize(
    "prior",
    [
        dist.TruncatedNormal(1.0, 2.0, low=0.0),
        dist.TruncatedNormal(1.0, 2.0, low=0.0, high=5.0),
        dist.Uniform(0.5, 2.0),
        dist.HalfNormal(1.0).expand((2,)),
        dist.ImproperUniform(constraints.positive, (), ()),
        dist.InverseGamma(2.0, 3.0),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_priors_survive_storage(prior: dist.Distribution) -> None:
    emission = Emission(dist.Normal, loc=0.0, scale=prior)
    again = emission_from_config(json.loads(json.dumps(emission_to_config(emission))))
    params = {"loc": np.zeros(2), "scale": np.array([0.7, 1.9])}
    expected_value = float(np.sum(np.broadcast_to(prior.log_prob(params["scale"]), 2)))
    assert float(again.log_prior(params)) == pytest.approx(expected_value, rel=1e-7)
