"""Mixtures: the prior of their ordered means, default priors, and wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate

from longhmm import GaussianMixture
from longhmm.errors import ModelError
from longhmm.model.emissions.gaussian_mixture import OrderedNormal
from model.emissions import checks

pytestmark = pytest.mark.usefixtures("double_precision")


def test_ordered_normal_integrates_to_one_and_draws_order_statistics() -> None:
    prior = OrderedNormal(1.0, 2.0, 2)
    log_prob = jax.jit(prior.log_prob)
    mass = integrate.dblquad(lambda b, a: float(np.exp(log_prob(np.array([a, b])))), -9, 11, lambda a: a, 11,
                             epsabs=1e-3, epsrel=1e-3)[0]  # fmt: skip
    assert mass == pytest.approx(1.0, abs=2e-3)
    draws = np.asarray(prior.sample(jax.random.key(0), (20_000,)))
    assert np.all(np.diff(draws) > 0)
    assert draws.mean() == pytest.approx(1.0, abs=0.05)
    # The larger of two standard normal draws has mean 1 / sqrt(pi).
    assert draws[:, 1].mean() == pytest.approx(1.0 + 2.0 / np.sqrt(np.pi), abs=0.06)


def test_default_priors_wait_for_the_data_and_are_finite() -> None:
    checks.default_priors_wait_for_the_data_and_are_finite(GaussianMixture(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianMixture(2, means=dist.Normal(0.0, 1.0)), "'means' of GaussianMixture needs an increasing"),
        (lambda: GaussianMixture(0), "n_components must be a whole number of at least 1"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()
