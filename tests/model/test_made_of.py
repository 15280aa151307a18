"""What a family is made of decides its class: other parameters, formulas, baselines."""

import inspect

import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.model.emissions.by_formula import ByFormula
from longhmm.model.emissions.coloured import Coloured
from longhmm.model.emissions.drifting import Drifting


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (lambda: lh.Gamma(), lh.Gamma),
        (lambda: lh.Gamma(mean=dist.HalfNormal(3.0)), lh.GammaMoments),
        (lambda: lh.Gaussian(noise=lh.ARNoise(1)), Coloured),
        (lambda: lh.Poisson(rate="~ x"), ByFormula),
        (lambda: lh.Gamma(mean="~ x"), ByFormula),
        (lambda: lh.Gaussian(drift=4), Drifting),
        (lambda: lh.Gaussian(drift=4, noise=lh.MANoise(1)), Drifting),
    ],
    ids=["plain", "moments", "noise", "formula", "formula of moments", "drift", "drift and noise"],
)
def test_arguments_decide_the_class(made, kind):
    assert type(made()) is kind


def test_what_is_around_an_emission_is_like_it():
    for around in (lh.Poisson(2, rate="~ x"), lh.StudentT(drift=5), lh.Tied(lh.Poisson(2), (0, 1))):
        inner = around.emission
        for name in ("dim", "support", "lags", "couples", "factorises"):
            assert getattr(around, name) == getattr(inner, name)
    assert type(lh.Gamma(mean="~ x").emission) is lh.GammaMoments
    assert type(lh.Gaussian(drift=4, noise=lh.MANoise(1)).emission) is Coloured


def test_parameters_of_two_families_are_not_mixed():
    with pytest.raises(ModelError, match="Gamma has either mean and sd or concentration, but it was given both"):
        lh.Gamma(mean=1.0, concentration=2.0)


def test_help_shows_what_makes_another_class():
    """Arguments that a class takes before it is one, such as the noise of a Gaussian."""
    families = (lh.Gaussian, lh.Gamma, lh.StudentT, lh.Poisson, lh.Categorical)
    names = {each: list(inspect.signature(each).parameters) for each in families}
    assert names[lh.Gaussian][-3:] == ["noise", "response", "drift"]
    assert names[lh.Gamma] == ["dim", "concentration", "rate", "mean", "sd"]
    assert names[lh.StudentT][-1] == "drift" and "drift" not in names[lh.Poisson] + names[lh.Categorical]
    assert list(inspect.signature(lh.Emission).parameters) == ["distribution", "dim", "priors"]
