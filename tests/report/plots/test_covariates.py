"""Pictures of what covariates do."""

import numpy as np
import pandas as pd
import pytest

import longhmm as lh
from longhmm.posterior.posterior import Posterior
from posterior.fakes import chains_of

X = np.linspace(-1.0, 1.0, 50)
GRID = pd.DataFrame({"x": [-1.0, 0.0, 2.0]})
MODEL = lh.HMM(2, lh.Gaussian(sd=1.0), transitions="~ x").resolve(lh.open_data(X, covariates={"x": X}))
BETA = np.zeros((1, 400, 2, 2, 2))


@pytest.fixture(scope="module")
def known():
    natural = {"coefficients": BETA, "mean": np.tile([0.0, 3.0], (1, 400, 1))}
    natural["transition"] = np.tile(np.full((2, 2), 0.5), (1, 400, 1, 1))
    return Posterior.from_chains(MODEL, chains_of(MODEL, natural))


def test_a_picture_is_drawn(known):
    figure = lh.plots.along(known, "x", GRID)
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_xdata(), sorted(GRID.x))
