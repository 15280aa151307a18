"""Answers as functions of covariates, at draws that are known."""

import numpy as np
import pandas as pd
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.posterior.posterior import Posterior
from posterior.fakes import chains_of

X = np.linspace(-1.0, 1.0, 50)
GRID = pd.DataFrame({"x": [-1.0, 0.0, 2.0]})
MODEL = lh.HMM(2, lh.Gaussian(sd=1.0), transitions="~ x").resolve(lh.open_data(X, covariates={"x": X}))
RNG = np.random.default_rng(1)
BETA = np.zeros((1, 400, 2, 2, 2))
BETA[..., 0, 1, :] = RNG.normal([-2.0, 1.0], 0.2, (1, 400, 2))
BETA[..., 1, 0, :] = RNG.normal([-1.0, -0.5], 0.2, (1, 400, 2))


@pytest.fixture(scope="module")
def known():
    natural = {"coefficients": BETA, "mean": np.tile([0.0, 3.0], (1, 400, 1))}
    natural["transition"] = np.tile(np.full((2, 2), 0.5), (1, 400, 1, 1))
    return Posterior.from_chains(MODEL, chains_of(MODEL, natural))


def test_answers_are_those_of_every_draw(known):
    found = known.along(GRID, interval=0.8, draws=400)
    out = [1 / (1 + np.exp(-(BETA[0, :, i, 1 - i] @ np.array([np.ones(3), GRID.x])))) for i in (0, 1)]  # (400, 3)
    expected = {"dwell": 1 / out[0], "stationary": out[1] / (out[0] + out[1])}
    for name, values in expected.items():
        own = found[name].sel(state=0)
        np.testing.assert_allclose(own.sel(summary="mean"), values.mean(axis=0), rtol=1e-9)
        for part, level in (("lower", 0.1), ("upper", 0.9)):
            np.testing.assert_allclose(own.sel(summary=part), np.quantile(values, level, axis=0), rtol=0.02)
    moves = found["transition"].sel(state=0, to_state=1, summary="mean")
    np.testing.assert_allclose(moves, out[0].mean(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(found.x, GRID.x)


def test_what_does_not_fit_is_refused(known):
    with pytest.raises(ModelError, match="covariates must be a table"):
        known.along(np.zeros((3, 1)))
    with pytest.raises(ModelError, match="one row for each point"):
        known.along({"x": []})
    constant = lh.HMM(2, lh.Poisson()).resolve([1, 2, 3])
    natural = {"transition": np.full((1, 4, 2, 2), 0.5), "rate": np.tile([1.0, 2.0], (1, 4, 1))}
    posterior = Posterior.from_chains(constant, chains_of(constant, natural))
    with pytest.raises(ModelError, match="needs a model that follows covariates"):
        posterior.along(GRID)
