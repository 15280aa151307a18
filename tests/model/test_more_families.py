"""Exponential, Weibull and beta emissions: densities, coherence, default priors, fits, storage."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.data.rows import Rows
from longhmm.errors import DataError
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
]
EVERY = pytest.mark.parametrize(("emission", "params", "law"), CASES, ids=["exponential", "weibull", "beta"])


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


@EVERY
def test_fits_recover_what_was_simulated(emission: Any, params: Any, law: Any) -> None:
    model, natural = lh.HMM(2, emission), {"transition": MOVES, **params}
    sequences = [np.array(each, np.float64) for each in lh.simulate(model, natural, [1500, 700, 1], seed=1)[1]]
    sequences[0][100] = np.nan
    lh.testing.check_coherence(model, natural, sequences[0][90:130])
    fit = lh.fit_em(model, sequences, seed=0, progress=False)
    with jax.enable_x64(True):
        order = np.argsort(
            np.asarray(emission.means({name: jnp.asarray(value) for name, value in params.items()}))[:, 0]
        )
    for name, value in params.items():
        np.testing.assert_allclose(fit.params[name], value[order], rtol=0.25)
    resolved = model.resolve(sequences)
    assert model_to_config(model_from_config(model_to_config(resolved))) == model_to_config(resolved)
    with pytest.raises(DataError, match="needs"):
        lh.log_likelihood(model, natural, np.array([0.5, -1.0]))
