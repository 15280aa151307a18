"""Steps and angles of a simulated animal whose states follow the hour of the day, and are known, where they are at
hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logit

import longhmm as lh
from longhmm.model.formula import transitions_into
from longhmm.model.row_by_row import checked_covariates
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
    counts, left = np.zeros((2, 2, 24), int)
    for state, hour in np.ndindex(2, 24):
        here = (states[:-1] == state) & (table.tod[1:].to_numpy() == hour + 1)
        counts[state, hour], left[state, hour] = here.sum(), np.sum(states[1:][here] != state)
    leave = (left + 0.5) / (counts + 1.0)
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
    # What the true states did in every hour, against what the posterior predicts of that many rows: the rows of the fit
    # itself, and whole numbers, so that more than 90 % lie within 90 % intervals.
    hours = checked_covariates(posterior.model, {"tod": HOURS}, 24)
    drawn = np.stack([np.asarray(transitions_into(posterior.model, each, hours)) for each in posterior.iterate(400)])
    chances = np.stack([drawn[:, :, 0, 1], drawn[:, :, 1, 0]], axis=1)
    ends = np.quantile(np.random.default_rng(0).binomial(counts, chances), [0.05, 0.95], axis=0)
    assert np.mean(((ends[0] <= left) & (left <= ends[1]))[counts > 0]) > 0.95
    # Intervals know more than the counts of a single hour.
    alone = np.sqrt(leave * (1 - leave) / np.maximum(counts, 1))
    assert np.mean((chances.std(axis=0) / alone)[counts >= 30]) < 1.0
