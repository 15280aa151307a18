"""Data with published maximum-likelihood estimates, where they are at hand; flat priors make the mode that maximum."""

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.distributions import constraints
from scipy.optimize import minimize

import longhmm as lh
from longhmm.inference.markov import stationary_on_host
from longhmm.model.formula import transitions_into
from longhmm.model.row_by_row import checked_covariates
from longhmm.samplers.mode import find_mode
from longhmm.target.coordinates import Flat, constrain
from recordings import RECORDINGS

DATA = RECORDINGS / "regression"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not DATA.is_dir(), reason="the data are not here")]
FLAT, POSITIVE = (dist.ImproperUniform(region, (), ()) for region in (constraints.real, constraints.positive))
TINY = 1e-6  # concentrations that are flat on the coordinates of rows


def maximum(model, data):
    """Parameters and log likelihood where its gradient vanishes, found from the mode on."""
    resolved, sequences = model.meet(data)
    coordinates = find_mode(resolved, sequences).coordinates
    flat = Flat.like(coordinates)

    def loss(at):
        params = constrain(resolved, flat.unravel(at))
        slope = lh.gradient(resolved, params, sequences, prior=False)
        return -lh.log_likelihood(resolved, params, sequences), -flat.ravel_numpy(slope)

    found = minimize(loss, flat.ravel_numpy(coordinates), jac=True, method="BFGS", options={"gtol": 1e-3})
    return constrain(resolved, flat.unravel(found.x)), -found.fun


def speed(transitions, covariate):
    table = pd.read_csv(DATA / "speed.csv").assign(x=covariate)
    emission = lh.Gaussian(mean=FLAT, sd=POSITIVE)
    how = {"transition_prior": TINY} if transitions is None else {"transitions": transitions}
    model = lh.HMM(2, emission, initial=[0.0, 1.0], **how)  # where the free initial distribution has its maximum
    return maximum(model, lh.open_data(table, columns="rt", covariates="x"))[1]


def test_speed_of_responses():
    payoff = pd.read_csv(DATA / "speed.csv").Pacc
    logit = lh.Logit("~ scale(x)", intercept=FLAT, slope=FLAT)
    assert speed(None, payoff) == pytest.approx(-88.73, abs=0.01)
    assert speed(logit, payoff) == pytest.approx(-44.2, abs=0.1)
    # There a covariate acts on the transition out of its row, here on that into it.
    assert speed(logit, payoff.shift(1).fillna(0.0)) == pytest.approx(-44.2, abs=0.01)


def haggis(**how):
    """Two states of haggis, every animal a sequence; the initial distribution is the published one."""
    circular = dist.ImproperUniform(constraints.circular, (), ())
    step = lh.Gamma(concentration=POSITIVE, rate=POSITIVE)
    emission = lh.Product(step=step, angle=lh.VonMises(loc=circular, concentration=POSITIVE))
    model = lh.HMM(2, emission, initial=[0.06370589, 0.93629411], **how)
    covariates = ["temp", "slope"] if how.get("transitions") else None
    return model, lh.open_data(DATA / "haggis.csv", columns=["step", "angle"], covariates=covariates, group="ID")


def test_movement_of_animals():
    model, data = haggis(transition_prior=TINY)
    mean, sd = np.array([0.9977756, 5.009977]), np.array([0.4951516, 3.044708])
    published = {
        "step_concentration": (mean / sd) ** 2,
        "step_rate": mean / sd**2,
        "angle_concentration": np.array([1.035834, 8.7682406]),
        "angle_loc": np.array([-3.109852, -0.3082705]),
        "transition": np.array([[0.8502570, 0.1497430], [0.1189896, 0.8810104]]),
    }
    assert lh.log_likelihood(model, published, data) == pytest.approx(-3462.487, abs=1e-3)
    params, likelihood = maximum(model, data)
    found = params["step_concentration"] / params["step_rate"]
    np.testing.assert_allclose(found, mean, rtol=0.01)
    np.testing.assert_allclose(found / np.sqrt(params["step_concentration"]), sd, rtol=0.01)
    for name in ("angle_concentration", "angle_loc", "transition"):
        np.testing.assert_allclose(params[name], published[name], rtol=0.01)
    assert likelihood == pytest.approx(-3462.487, abs=0.005)


def test_movement_of_animals_that_follow_covariates():
    """The published AIC, 6814.784, is that of 23 parameters at this maximum; SciPy finds the same one."""
    logit = lh.Logit("~ temp + slope + I(slope**2)", intercept=FLAT, slope=FLAT)
    model, data = haggis(transitions=logit)
    model.initial = np.array([0.558, 0.442])
    params, likelihood = maximum(model, data)
    assert likelihood == pytest.approx(-3384.392, abs=0.05)
    grid = {"temp": np.full(20, 10.0), "slope": np.linspace(1.0, 40.0, 20)}
    best = stationary_on_host(
        transitions_into(model.meet(data)[0], params, checked_covariates(model.meet(data)[0], grid, 20))
    )
    posterior = lh.sample(lh.HMM(2, model.emission, transitions="~ temp + slope + I(slope**2)"), data, draws=100)
    found = posterior.along(grid)["stationary"]
    inside = (found.sel(summary="lower") <= best) & (best <= found.sel(summary="upper"))
    assert inside.mean() > 0.95
