"""Every sampler serves models beyond the plain one, or refuses them in one sentence before any work."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.errors import LongHMMError
from longhmm.samplers import SAMPLERS
from toys.leaving import MODEL, PARAMS, simulated

SETTINGS = {
    "SGLD": {"step_size": 1e-4},
    "NUTS": {"step_size": 0.1, "inverse_mass": 0.01 * np.eye(8), "max_tree_depth": 2},
    "HMC": {"step_size": 0.1, "inverse_mass": 0.01 * np.eye(8), "leapfrogs": 2},
    "Gibbs": {"adaptation_steps": 3},
}


class Coupled(lh.Emission):
    """`y_t ~ Normal(mean_k + jump_k, 1)` where the state has just changed, without the jump where it stays."""

    couples = True

    def __init__(self):
        super().__init__(None, mean=dist.Normal(0, 5), jump=dist.Normal(0, 5))

    def log_likelihoods(self, params, rows):
        moved = ~jnp.eye(2, dtype=bool)
        mean = params["mean"] + jnp.where(moved, params["jump"], 0.0)
        logs = dist.Normal(mean, 1.0).log_prob(rows.values[..., None])
        return jnp.where(rows.observed[..., None], logs, 0.0)


def covariate():
    return MODEL, PARAMS, simulated(np.sin(np.arange(400) / 20), 5)


def coupled():
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "mean": [0.0, 3.0], "jump": [0.0, 2.0]}
    rng = np.random.default_rng(1)
    states = np.cumsum(rng.random(400) < 0.15) % 2
    jumps = np.where(np.diff(states, prepend=0) != 0, np.array([0.0, 2.0])[states], 0.0)
    return lh.HMM(2, Coupled()), params, lh.open_data(3.0 * states + jumps + rng.normal(size=400))


REFUSED = {
    "covariate": {"BatchRLD", "ExpectationMaximisation", "Gibbs", "SGRLD", "StochasticVariational"},
    "coupled": {"Gibbs", "StochasticVariational"},
}


OWN = sorted(name for name, place in SAMPLERS.modules().items() if "longhmm." in place)
WAIT = ("HMC", "SGHMC")  # which ask of a target what NUTS and SGLD ask


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each in WAIT)) for each in OWN])
def test_it_works_or_refuses_plainly(name, kind):
    model, params, data = {"covariate": covariate, "coupled": coupled}[kind]()
    settings = dict(SETTINGS.get(name, {}))
    if "inverse_mass" in settings:
        size = sum(value.size for value in lh.unconstrain(model, params).values())
        settings["inverse_mass"] = 0.01 * np.eye(size)
    sampler = SAMPLERS.find(name)(**settings)

    def run():
        how = {"init": params, "chains": 1, "draws": 4, "warmup": 2, "seed": 0, "progress": False}
        return lh.sample(model, data, sampler=sampler, windows=lh.Windows(10, 6), buffer=lh.FixedBuffer(8), **how)

    if name in REFUSED[kind]:
        with pytest.raises(LongHMMError, match=rf"{sampler.name} needs") as refusal:
            run()
        assert str(refusal.value).count(". ") == 0 and len(str(refusal.value)) < 300
    else:
        posterior = run()
        assert all(np.all(np.isfinite(each)) for each in posterior.draws.values())


def test_fit_em_refuses_transitions_that_follow_covariates():
    model, params, data = covariate()
    with pytest.raises(LongHMMError, match="EM needs"):
        lh.fit_em(model, data, init=params, progress=False)
