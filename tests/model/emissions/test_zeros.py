"""A point mass at 0 beside a family: densities, sums, draws, fits, storage."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import longhmm as lh
from longhmm.data.rows import Rows
from longhmm.errors import DataError, ModelError
from longhmm.model.serialise import model_from_config, model_to_config

MOVES = np.array([[0.95, 0.05], [0.1, 0.9]])
ZERO = {"zero": np.array([0.3, 0.1])}
RATES = {**ZERO, "rate": np.array([1.0, 6.0])}
SHAPES = {**ZERO, "concentration": np.array([2.0, 5.0]), "rate": np.array([4.0, 1.0])}
CASES: list[tuple[Any, dict[str, Any]]] = [
    (lh.ZeroInflated(lh.Poisson()), RATES),
    (lh.Hurdle(lh.Poisson()), RATES),
    (lh.ZeroInflated(lh.Gamma()), SHAPES),
]
EVERY = pytest.mark.parametrize(("emission", "params"), CASES, ids=["inflated", "hurdle", "positive"])


@EVERY
def test_probabilities_are_those_of_the_definition(emission: Any, params: Any) -> None:
    counts = np.arange(40)[:, None].astype(float)
    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(value) for name, value in params.items()}
        found = np.exp(emission.log_likelihoods(arrays, Rows(counts, np.ones(counts.shape, bool))))
        lower, upper = (np.asarray(each)[..., 0] for each in emission.cdf(arrays, jnp.asarray(counts)))
        means = np.asarray(emission.means(arrays))[:, 0]
    for state, zero in enumerate(params["zero"]):
        if not emission.discrete:
            law = stats.gamma(params["concentration"][state], scale=1 / params["rate"][state])
            expected = np.where(counts[:, 0] == 0, zero, (1 - zero) * law.pdf(np.maximum(counts[:, 0], 1)))
            np.testing.assert_allclose(upper[:, state], zero + (1 - zero) * law.cdf(counts[:, 0]), rtol=1e-6)
            assert means[state] == pytest.approx((1 - zero) * law.mean()) and lower[0, state] == 0
        else:
            own = stats.poisson(params["rate"][state]).pmf(counts[:, 0])
            own = np.where(counts[:, 0] == 0, 0, own) / (1 - own[0]) if emission.truncates else own
            expected = (1 - zero) * own + zero * (counts[:, 0] == 0)
            assert found[:, state].sum() == pytest.approx(1.0) and means[state] == pytest.approx(
                expected @ counts[:, 0]
            )
            np.testing.assert_allclose(upper[:, state], np.cumsum(expected), rtol=1e-6)
            np.testing.assert_allclose(lower[1:, state], np.cumsum(expected)[:-1], rtol=1e-6)
        np.testing.assert_allclose(found[:, state], expected, rtol=1e-7)


def test_states_that_hardly_emit_more_than_zero_have_no_density_above_one() -> None:
    params = {"zero": np.array([0.4, 0.4]), "rate": np.array([8.9e-16, 1e-20])}
    ones = Rows(np.ones((1, 1)), np.ones((1, 1), bool))
    with jax.enable_x64(True):
        found = jax.jit(lh.Hurdle(lh.Poisson()).log_likelihoods)(params, ones)
    np.testing.assert_allclose(found, np.log([[0.6, 0.6]]), rtol=1e-6)


def simulated(emission: Any, params: Any) -> tuple[lh.HMM, dict[str, Any], list[np.ndarray]]:
    model, natural = lh.HMM(2, emission), {"transition": MOVES, **params}
    values = [np.array(each, np.float64) for each in lh.simulate(model, natural, [2500, 900], seed=1)[1]]
    values[0][100] = np.nan
    return model, natural, values


@EVERY
@pytest.mark.slow
def test_it_is_coherent_stored_and_refuses_other_numbers(emission: Any, params: Any) -> None:
    model, natural, values = simulated(emission, params)
    lh.testing.check_coherence(model, natural, values[0][90:120])
    config = model_to_config(model.resolve(values))
    assert model_to_config(model_from_config(config)) == config
    with pytest.raises(DataError, match="needs"):
        lh.log_likelihood(model, natural, np.array([0.0, -1.0]))


@pytest.mark.slow
@EVERY
def test_fits_recover_what_was_simulated(emission: Any, params: Any) -> None:
    model, _, values = simulated(emission, params)
    fit = lh.fit_em(model, values, seed=0, progress=False)
    np.testing.assert_allclose(fit.params["zero"], params["zero"], atol=0.06)
    np.testing.assert_allclose(fit.params["rate"], params["rate"], rtol=0.25)


def test_what_does_not_fit_is_refused() -> None:
    for wrong in (lh.Gaussian(), lh.Gamma(dim=2), 3):
        with pytest.raises(ModelError, match="needs a family of one positive number or count"):
            lh.Hurdle(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [1e-12, 0.02, 0.3])
def test_counts_that_are_almost_surely_0_are_drawn_given_that_they_are_not(rate):
    """Among them rates at which drawing until no 0 is left would not end."""
    model = lh.HMM(1, lh.Hurdle(lh.Poisson()))
    _, y = lh.simulate(model, {"transition": [[1.0]], "zero": [0.0], "rate": [rate]}, 20_000, seed=1)
    expected = stats.poisson(rate).pmf([1, 2]) / -np.expm1(-rate)
    found = [np.mean(y == count) for count in (1, 2)]
    assert y.min() == 1
    np.testing.assert_allclose(found, expected, atol=4 * np.sqrt(0.25 / 20_000))
    assert found[1] == pytest.approx(expected[1], abs=4 * np.sqrt(expected[1] / 20_000) + 1e-12)
