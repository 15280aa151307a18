"""Steps and angles of a simulated animal whose states follow the hour of the day, and are known, where they are at
hand."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize

import longhmm as lh

FILE = Path(os.environ.get("LONGHMM_RECORDINGS", Path(__file__).parents[2] / "../shared/data")) / "regression/trex.csv"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FILE.is_file(), reason="the data are not here")]
DAY = "cos(2 * pi * tod / 24) + sin(2 * pi * tod / 24) + cos(4 * pi * tod / 24) + sin(4 * pi * tod / 24)"


def waves(hour):
    angle = 2 * np.pi * np.asarray(hour) / 24
    return np.stack([np.ones(len(angle)), np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)], axis=1)


@pytest.fixture(scope="module")
def truth():
    """The most likely parameters where states are known: nearer to the true ones than any that are found without."""
    table = pd.read_csv(FILE)
    states = table.state.to_numpy() - 1
    beta = np.zeros((2, 2, 5))
    for state in (0, 1):
        here = states[:-1] == state
        terms, left = waves(table.tod[1:])[here], states[1:][here] != state

        def loss(at, terms=terms, left=left):
            return np.sum(np.logaddexp(0.0, terms @ at)) - np.sum(terms[left] @ at)

        beta[state, 1 - state] = minimize(loss, np.zeros(5), method="BFGS").x
    groups = [table[states == state] for state in (0, 1)]
    shapes = [stats.gamma.fit(group.step.dropna(), floc=0) for group in groups]
    turns = [stats.vonmises.fit(group.angle.dropna(), fscale=1) for group in groups]
    params = {
        "coefficients": beta,
        "step_mean": np.array([shape * scale for shape, _, scale in shapes]),
        "step_sd": np.array([np.sqrt(shape) * scale for shape, _, scale in shapes]),
        "angle_loc": np.array([loc for _, loc, _ in turns]),
        "angle_concentration": np.array([kappa for kappa, *_ in turns]),
    }
    return table, states, params


EMISSION = lh.Product(step=lh.GammaMoments(), angle=lh.VonMises())


@pytest.mark.parametrize("terms", ["s(tod, bs='cc', k=10, period=24)", DAY])
def test_states_are_found_and_the_day_has_its_curve(truth, terms):
    table, states, params = truth
    data = lh.open_data(table, columns=["step", "angle"], covariates="tod")
    known = lh.HMM(2, EMISSION, transitions=f"~ {DAY}").resolve(data)
    best = np.mean(lh.decode(known, params, data) == states)
    posterior = lh.sample(lh.HMM(2, EMISSION, transitions=f"~ {terms}"), data, draws=500, progress=False)
    assert np.mean(posterior.decode(data) == states) > best - 0.005
    hours = np.arange(1, 25)
    leave = 1 / (1 + np.exp(-(waves(hours) @ params["coefficients"][[0, 1], [1, 0]].T)))
    found = posterior.along({"tod": hours}, interval=0.95)["transition"]
    inside = [
        (found.sel(summary="lower", state=i, to_state=1 - i) <= leave[:, i])
        & (leave[:, i] <= found.sel(summary="upper", state=i, to_state=1 - i))
        for i in (0, 1)
    ]
    assert np.mean(inside) > 0.9


def test_step_lengths_have_no_daily_curve(truth):
    """The mean step does not follow the hour in truth: intervals of its curve contain a constant."""
    table, states, params = truth
    table = table.assign(state=states)
    emission = lh.Product(step=lh.Gamma(mean="~ s(tod, bs='cc', k=6, period=24)"), angle=lh.VonMises())
    data = lh.open_data(table, columns=["step", "angle"], covariates="tod")
    model = lh.HMM(2, emission, transitions=f"~ {DAY}")
    posterior = lh.sample(model, data, draws=500, progress=False)
    found = posterior.along({"tod": np.arange(1, 25)}, interval=0.95)["step_mean"]
    inside = (found.sel(summary="lower") <= params["step_mean"]) & (params["step_mean"] <= found.sel(summary="upper"))
    assert inside.mean() > 0.9
