"""Streams with families of their own: densities, missing columns, kernels, and a published answer."""

from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import longhmm as lh
from longhmm.backends import native
from longhmm.backends.read import Reader
from longhmm.data.rows import Rows
from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.model.registry import emission_from_name
from longhmm.model.serialise import model_from_config, model_to_config
from longhmm.testing import check_coherence
from recordings import RECORDINGS
from target.references import forward_log_likelihood

HAGGIS = RECORDINGS / "regression" / "haggis.csv"
MOVEMENT = lh.HMM(2, lh.Product(step=lh.Gamma(), angle=lh.VonMises()))
PARAMS = {
    "transition": np.array([[0.95, 0.05], [0.1, 0.9]]),
    "step_concentration": np.array([1.0, 5.0]),
    "step_rate": np.array([2.0, 1.0]),
    "angle_loc": np.array([0.0, 0.3]),
    "angle_concentration": np.array([0.5, 4.0]),
}


def movement(length: int = 600) -> np.ndarray:
    """Each column with gaps of its own, and rows in which nothing was observed."""
    y = np.array(lh.simulate(MOVEMENT, PARAMS, length, seed=1)[1], np.float64)
    y[np.random.default_rng(0).random(y.shape) < 0.2] = np.nan
    y[5] = np.nan
    return y


def observed(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.nan_to_num(y, nan=1.0), ~np.isnan(y)


def test_log_likelihoods_are_sums_over_observed_streams() -> None:
    y = movement(50)
    observed = ~np.isnan(y)
    with jax.enable_x64(True):
        steps = dist.Gamma(PARAMS["step_concentration"], PARAMS["step_rate"])
        angles = dist.VonMises(PARAMS["angle_loc"], PARAMS["angle_concentration"])
        filled = np.where(observed, y, 1.0)
        expected = np.where(observed[:, :1], steps.log_prob(filled[:, :1]), 0.0)
        expected = expected + np.where(observed[:, 1:], angles.log_prob(filled[:, 1:]), 0.0)
        params = {name: jnp.asarray(value) for name, value in PARAMS.items()}
        found = MOVEMENT.emission.log_likelihoods(params, Rows(jnp.asarray(filled), jnp.asarray(observed)))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.slow
def test_streams_of_several_features_and_without_numbers_for_the_kernel() -> None:
    model = lh.HMM(2, lh.Product(place=lh.Gaussian(dim=2), count=lh.Poisson(), kind=lh.Categorical(3)))
    params = {
        "transition": PARAMS["transition"],
        "place_mean": np.array([[0.0, 0.0], [2.0, 1.0]]),
        "place_covariance": np.stack([np.eye(2), [[1.0, 0.3], [0.3, 0.5]]]),
        "count_rate": np.array([1.0, 6.0]),
        "kind_probs": np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]),
    }
    states, y = lh.simulate(model, params, 400, seed=2)
    assert y.shape == (400, 4) and Reader(model, open_data(y)).lowering is None
    check_coherence(model, params, np.asarray(y)[:30])
    assert np.mean(lh.decode(model, params, y) == states) > 0.95


@pytest.mark.slow
def test_it_passes_the_coherence_test() -> None:
    check_coherence(MOVEMENT, PARAMS, movement(40))


@pytest.mark.skipif(not native.available(), reason="the C++ kernel was not built")
def test_missing_columns_stay_in_the_kernel() -> None:
    y = movement()
    data = open_data([y[:250], y[250:251], y[251:]])
    model = MOVEMENT.resolve(data)
    lowering = Reader(model, data).lowering
    assert lowering is not None and lowering.partial_rows
    found = lh.gradient(model, PARAMS, data, prior=False), lh.log_likelihood(model, PARAMS, data)
    with patch.object(native, "available", lambda: False):
        expected = lh.gradient(model, PARAMS, data, prior=False), lh.log_likelihood(model, PARAMS, data)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9), found, expected)
    # The same from densities of every stream, which know nothing of the kernel's numbers.
    params = model.validate(PARAMS)
    with jax.enable_x64(True):
        logs = model.log_likelihoods({name: jnp.asarray(each) for name, each in params.items()}, Rows(*observed(y)))
    plain = forward_log_likelihood(params["initial"], PARAMS["transition"], np.asarray(logs), [250, 1, len(y) - 251])
    np.testing.assert_allclose(found[1], plain, rtol=1e-12)
    # Summed in numbers of the kernel, or by automatic differentiation of densities: the same slopes.
    at = lh.unconstrain(model, PARAMS)
    for name in ("step_rate", "angle_loc"):
        moved = [
            lh.log_likelihood(model, lh.constrain(model, {**at, name: at[name] + h * np.eye(2)[1]}), data)
            for h in (1e-5, -1e-5)
        ]
        np.testing.assert_allclose(found[0][name][1], (moved[0] - moved[1]) / 2e-5, rtol=1e-6)


def test_it_is_rebuilt_from_names_and_numbers() -> None:
    model = MOVEMENT.resolve(movement())
    config = model_to_config(model)
    rebuilt = model_from_config(config)
    assert model_to_config(rebuilt) == config and list(rebuilt.emission.streams) == ["step", "angle"]
    assert jax.tree.structure(rebuilt.emission) == jax.tree.structure(model.emission)


def test_the_command_line_names_streams() -> None:
    data = open_data(movement(100))
    found = emission_from_name("step=gamma,angle=von-mises", data, step_rate=dist.Gamma(2.0, 1.0))
    assert found.names == MOVEMENT.emission.names and isinstance(
        found.streams["step"].specifications["rate"], dist.Gamma
    )
    with pytest.raises(ModelError, match="got 'norm'"):
        emission_from_name("step=norm,angle=von-mises", data)


def test_what_does_not_fit_is_refused() -> None:
    y = movement(20)
    y[3, 0] = -1.0
    with pytest.raises(DataError, match=r"step of .*3"):
        lh.log_likelihood(MOVEMENT, PARAMS, y)
    with pytest.raises(ModelError, match="3 feature"):
        lh.log_likelihood(MOVEMENT, PARAMS, np.ones((20, 3)))
    with pytest.raises(ModelError, match="at least one stream"):
        lh.Product()
    with pytest.raises(ModelError, match="'step' must be a family"):
        lh.Product(step=3.0)


@pytest.mark.skipif(not HAGGIS.exists(), reason="the data are not at hand")
def test_the_published_likelihood_of_moving_animals() -> None:
    """Two states of haggis, as moveHMM gives them; every animal is a sequence of its own."""
    table = np.genfromtxt(HAGGIS, delimiter=",", names=True)
    rows = np.stack([table["step"], table["angle"]], axis=1)
    animals = [rows[table["ID"] == animal] for animal in np.unique(table["ID"])]
    mean, sd = np.array([0.9977756, 5.009977]), np.array([0.4951516, 3.044708])
    params = {
        "initial": [0.06370589, 0.93629411],
        "transition": [[0.8502570, 0.1497430], [0.1189896, 0.8810104]],
        "step_concentration": (mean / sd) ** 2,
        "step_rate": mean / sd**2,
        "angle_loc": [-3.109852, -0.3082705],
        "angle_concentration": [1.035834, 8.7682406],
    }
    np.testing.assert_allclose(lh.log_likelihood(MOVEMENT, params, animals), -3462.487, atol=1e-3)
