"""Steps and angles of a simulated animal whose states follow the hour of the day, and are known, where they are at
hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logit

import longhmm as lh
from recordings import RECORDINGS

FILE = RECORDINGS / "regression/trex.csv"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FILE.is_file(), reason="the data are not here")]
EMISSION = lh.Product(step=lh.GammaMoments(), angle=lh.VonMises())
HOURS = np.arange(1, 25)


def test_states_are_found_and_the_day_has_its_curve():
    """As well as with the parameters that are most likely where states are known, a matrix for every hour."""
    table = pd.read_csv(FILE)
    states = table.state.to_numpy() - 1
    data = lh.open_data(table, columns=["step", "angle"], covariates="tod")
    leave, counts = np.zeros((2, 2, 24))
    for state, hour in np.ndindex(2, 24):
        here = (states[:-1] == state) & (table.tod[1:].to_numpy() == hour + 1)
        counts[state, hour] = here.sum()
        leave[state, hour] = (np.sum(states[1:][here] != state) + 0.5) / (here.sum() + 1.0)
    groups = [table[states == state].dropna() for state in (0, 1)]
    beta = np.zeros((2, 2, 24))
    for state in (0, 1):
        odds = logit(leave[state])
        beta[state, 1 - state] = np.append(odds[0], odds[1:] - odds[0])
    params = {
        "coefficients": beta,
        "step_mean": np.array([group.step.mean() for group in groups]),
        "step_sd": np.array([group.step.std() for group in groups]),
        "angle_loc": np.array([stats.vonmises.fit(group.angle, fscale=1)[1] for group in groups]),
        "angle_concentration": np.array([stats.vonmises.fit(group.angle, fscale=1)[0] for group in groups]),
    }
    known = lh.HMM(2, EMISSION, transitions="~ C(tod)").resolve(data)
    best = np.mean(lh.decode(known, params, data) == states)
    model = lh.HMM(2, EMISSION, transitions="~ s(tod, bs='cc', k=10, period=24)")
    posterior = lh.sample(model, data, chains=2, draws=300, progress=False)
    assert np.mean(posterior.decode(data) == states) > best - 0.005
    found = posterior.along({"tod": HOURS}, interval=0.95)["transition"]
    lower, upper = (
        np.stack([found.sel(summary=part, state=i, to_state=1 - i) for i in (0, 1)]) for part in ("lower", "upper")
    )
    often = counts >= 30
    assert np.mean(((lower <= leave) & (leave <= upper))[often]) > 0.85
