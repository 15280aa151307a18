"""The best Gaussian of weighted rows under flat priors is their weighted mean and covariance."""

import numpy as np
import pytest
from numpyro import distributions as dist
from numpyro.distributions import constraints

import longhmm as lh
from longhmm.model.conjugate import RootInverseGamma

REGIONS = {"mean": "real", "sd": "positive"}


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_flat_priors_give_weighted_moments(kind):
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(40, 2)) @ [[1.0, 0.5], [0.0, 2.0]] + 3.0, rng.uniform(size=(40, 2))
    name, support, shape = {
        "full": ("covariance", constraints.positive_definite, (2, 2)),
        "diagonal": ("variance", constraints.positive, (2,)),
    }[kind]
    flat = {"mean": dist.ImproperUniform(constraints.real, (), (2,)), name: dist.ImproperUniform(support, (), shape)}
    emission = lh.Gaussian(dim=2, **({"covariance": kind} | flat))
    centre = np.array([[1.0, -1.0], [2.0, 0.5]])
    away = rows[:, None] - centre
    terms = [np.ones((40, 2)), *np.moveaxis(away, -1, 0), away[..., 0] ** 2, away.prod(-1), away[..., 1] ** 2]
    sums = np.stack([(weights * term).sum(axis=0) for term in terms], axis=1)
    found = emission.mode(2, sums, {"mean": centre}, prior=True)
    for state, weight in enumerate(weights.T):
        np.testing.assert_allclose(found["mean"][state], np.average(rows, axis=0, weights=weight), rtol=1e-5)
        spread = np.cov(rows.T, aweights=weight, ddof=0)
        np.testing.assert_allclose(found[name][state], spread if kind == "full" else np.diag(spread), rtol=1e-4)


@pytest.mark.parametrize("flat", [True, False])
def test_one_feature_has_its_mode_in_the_standard_deviation(flat):
    """Against a fine grid of the log posterior density of mean and sd."""
    rows = np.random.default_rng(1).normal(2.0, 1.5, size=(40, 1))
    free = {"mean": dist.Normal(0.0, 1.0), "sd": RootInverseGamma(1.5, 0.7)}
    if flat:
        free = {name: dist.ImproperUniform(getattr(constraints, kind), (), ()) for name, kind in REGIONS.items()}
    found = lh.Gaussian(**free).fit([rows])

    def density(mean, sd):
        logs = -40 * np.log(sd) - 0.5 * np.sum((rows - mean) ** 2) / sd**2
        return logs if flat else logs - 0.5 * mean**2 - 5 * np.log(sd) - 0.7 / sd**2 + np.log(sd)

    best = density(*(value[0] for value in found.values()))
    for mean in found["mean"][0] + np.linspace(-0.01, 0.01, 21):
        for sd in found["sd"][0] + np.linspace(-0.01, 0.01, 21):
            assert density(mean, sd) <= best + 1e-9
