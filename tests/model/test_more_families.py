"""Exponential, Weibull, beta, and gamma by its moments: densities, coherence, default priors, fits, storage."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import longhmm as lh
from longhmm.data.rows import Rows
from longhmm.errors import DataError, ModelError
from longhmm.model.serialise import model_from_config, model_to_config

MOVES = np.array([[0.95, 0.05], [0.1, 0.9]])
CASES: list[tuple[Any, dict[str, Any], Any]] = [
    (lh.Exponential(), {"rate": np.array([0.3, 4.0])}, lambda p, k: stats.expon(scale=1 / p["rate"][k])),
    (
        lh.Weibull(),
        {"scale": np.array([10.0, 1.0]), "concentration": np.array([3.0, 0.8])},
        lambda p, k: stats.weibull_min(p["concentration"][k], scale=p["scale"][k]),
    ),
    (
        lh.Beta(),
        {"concentration1": np.array([2.0, 8.0]), "concentration0": np.array([9.0, 3.0])},
        lambda p, k: stats.beta(p["concentration1"][k], p["concentration0"][k]),
    ),
    (
        lh.GammaMoments(),
        {"mean": np.array([0.3, 5.0]), "sd": np.array([0.2, 3.0])},
        lambda p, k: stats.gamma((p["mean"][k] / p["sd"][k]) ** 2, scale=p["sd"][k] ** 2 / p["mean"][k]),
    ),
]
EVERY = pytest.mark.parametrize(("emission", "params", "law"), CASES, ids=["exponential", "weibull", "beta", "moments"])


@EVERY
def test_density_and_distribution_function_are_those_of_scipy(emission: Any, params: Any, law: Any) -> None:
    y = np.linspace(0.05, 0.95, 7)[:, None]
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        logs = emission.log_likelihoods(arrays, Rows(y, y < 0.9))
        below = emission.cdf(arrays, jnp.asarray(y))[1][..., 0]
    for state in range(2):
        np.testing.assert_allclose(logs[:, state], np.where(y < 0.9, law(params, state).logpdf(y), 0.0)[:, 0])
        np.testing.assert_allclose(below[:, state], law(params, state).cdf(y)[:, 0], rtol=1e-6)


def simulated(emission: Any, params: Any) -> tuple[lh.HMM, dict[str, Any], list[np.ndarray]]:
    model, natural = lh.HMM(2, emission), {"transition": MOVES, **params}
    sequences = [np.array(each, np.float64) for each in lh.simulate(model, natural, [1500, 700, 1], seed=1)[1]]
    sequences[0][100] = np.nan
    return model, natural, sequences


@EVERY
def test_it_is_coherent_stored_and_refuses_other_numbers(emission: Any, params: Any, law: Any) -> None:
    model, natural, sequences = simulated(emission, params)
    lh.testing.check_coherence(model, natural, sequences[0][90:130])
    config = model_to_config(model.resolve(sequences))
    assert model_to_config(model_from_config(config)) == config
    with pytest.raises(DataError, match="needs"):
        lh.log_likelihood(model, natural, np.array([0.5, -1.0]))


@pytest.mark.slow
@EVERY
def test_fits_recover_what_was_simulated(emission: Any, params: Any, law: Any) -> None:
    model, _, sequences = simulated(emission, params)
    fit = lh.fit_em(model, sequences, seed=0, progress=False)
    with jax.enable_x64(True):
        order = np.argsort(
            np.asarray(emission.means({name: jnp.asarray(value) for name, value in params.items()}))[:, 0]
        )
    for name, value in params.items():
        np.testing.assert_allclose(fit.params[name], value[order], rtol=0.25)


def test_a_gamma_of_moments_is_that_of_concentration_and_rate() -> None:
    """In the kernel, and in every derivative, by the chain rule."""
    mean, sd = np.array([0.4, 6.0]), np.array([0.3, 2.0])
    natural = {"transition": MOVES, "concentration": (mean / sd) ** 2, "rate": mean / sd**2}
    plain, moments = lh.HMM(2, lh.Gamma()), lh.HMM(2, lh.Gamma(mean=dist.LogNormal(0.0, 3.0)))
    assert type(moments.emission) is lh.GammaMoments and moments.emission.lowering is not None
    y = lh.simulate(plain, natural, 400, seed=2)[1]
    params = {"transition": MOVES, "mean": mean, "sd": sd}
    assert lh.log_likelihood(moments, params, y) == pytest.approx(lh.log_likelihood(plain, natural, y), rel=1e-12)
    slope, own = lh.gradient(moments, params, y, prior=False), lh.gradient(plain, natural, y, prior=False)
    # log concentration = 2 (log mean - log sd), log rate = log mean - 2 log sd
    np.testing.assert_allclose(slope["mean"], 2 * own["concentration"] + own["rate"], rtol=1e-9)
    np.testing.assert_allclose(slope["sd"], -2 * own["concentration"] - 2 * own["rate"], rtol=1e-9)
    step = 1e-5 * np.array([1.0, 0.0])
    high, low = (lh.log_likelihood(moments, {**params, "mean": mean * np.exp(way * step)}, y) for way in (1, -1))
    assert slope["mean"][0] == pytest.approx((high - low) / 2e-5, rel=1e-6)
    with pytest.raises(ModelError, match="Gamma has either mean and sd or rate"):
        lh.Gamma(mean=1.0, rate=2.0)
