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


HEAVY = {"mean": 50.0, "concentration": 0.02}  # one in seven is not 0; of those one in eleven is above 1100
RARE = {"mean": 0.05, "concentration": 2e-4}  # one in a thousand is not 0; of those one in sixteen is above 200


@pytest.mark.parametrize(
    ("family", "own"),
    [
        (lh.Poisson(), {"rate": 1e-12}),
        (lh.Poisson(), {"rate": 0.02}),
        (lh.Poisson(), {"rate": 3.0}),
        (lh.NegativeBinomial(), RARE),
        (lh.NegativeBinomial(), HEAVY),
    ],
)
def test_counts_are_drawn_given_that_they_are_not_0(family: Any, own: dict[str, float]) -> None:
    """Among them rates at which drawing until no 0 is left would not end, and counts far beyond their mean."""
    size, model = 20_000, lh.HMM(1, lh.Hurdle(family))
    params = {"transition": [[1.0]], "zero": [0.0], **{name: [each] for name, each in own.items()}}
    _, y = lh.simulate(model, params, size, seed=1)
    if "rate" in own:
        law = stats.poisson(own["rate"])
        rest = -np.expm1(-own["rate"])
    else:
        mean, shape = own["mean"], own["concentration"]
        law = stats.nbinom(shape, shape / (shape + mean))
        rest = -np.expm1(-shape * np.log1p(mean / shape))
    edges = np.unique(np.concatenate([np.arange(1, 12), np.geomspace(12, 10_000, 30).astype(int)]))
    chances = -np.diff(law.sf(np.append(edges - 1, 10**9))) / rest
    assert y.min() >= 1
    kept = size * chances > 5
    found = np.histogram(y, [*edges, np.inf])[0]
    both = [np.append(each[kept], each[~kept].sum()) for each in (found, size * chances)]
    assert both[0][-1] <= both[1][-1] + 6 * np.sqrt(both[1][-1]) + 1e-3
    both = [each[both[1] > 1] for each in both]
    assert stats.chi2.sf(np.sum((both[0] - both[1]) ** 2 / both[1]), max(len(both[0]) - 1, 1)) > 1e-3
