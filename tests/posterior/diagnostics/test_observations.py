"""Quantiles of pseudo-residuals, and predicted distributions of observations against the data they describe."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri
from scipy.stats import poisson

from longhmm import Gamma, Gaussian, GaussianMixture, Poisson, StudentT
from longhmm.data.sequences import open_data
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics.mixed_cdf import EDGE
from longhmm.posterior.diagnostics.observations import amplitudes, bin_probabilities, quantiles, residuals

TRANSITION, LEVEL = np.array([[0.9, 0.07, 0.03], [0.1, 0.85, 0.05], [0.02, 0.08, 0.9]]), np.array([-1.0, 0.5, 3.0])
RATE, SD = np.array([0.7, 3.0, 12.0]), np.array([0.5, 1.0, 0.3])
PARTS = {"weights": np.array([[0.3, 0.7]] * 3), "means": LEVEL[:, None] + [0.0, 1.0], "scales": np.tile(SD, (2, 1)).T}
# A family, its parameters, and what SciPy has of it: density and distribution function of every state.
FAMILIES = {
    "gaussian": (Gaussian(), {"mean": LEVEL, "sd": SD}, stats.norm(LEVEL, SD)),
    "student-t": (StudentT(), {"df": RATE, "loc": LEVEL, "scale": SD}, stats.t(RATE, LEVEL, SD)),
    "gamma": (Gamma(), {"concentration": RATE, "rate": SD}, stats.gamma(RATE, scale=1 / SD)),
    "poisson": (Poisson(), {"rate": RATE}, poisson(RATE)),
    "mixture": (GaussianMixture(2), PARTS, None),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_residuals_are_those_of_a_filter_row_by_row(family):
    emission, params, known = FAMILIES[family]
    params, model = {"transition": TRANSITION, **params}, HMM(3, emission)
    values = np.asarray(simulate(model, params, 800, seed=3)[1], np.float64)
    values[[5, 6, 200]] = np.nan
    data = open_data([values[:300], values[300:]])
    model = model.resolve(data)
    found = residuals(model, params, data, seed=4)
    spread, expected = np.random.default_rng(4).uniform(size=len(values)), np.full(len(values), np.nan)
    for start, stop in ((0, 300), (300, 800)):
        chances = model.validate(params)["initial"]
        for t in range(start, stop):
            y = values[t]
            if np.isfinite(y):
                lower, upper, density = _of_states(known, y)
                below = chances @ (lower + (upper - lower) * spread[t])
                expected[t] = ndtri(np.clip(below, EDGE, 1 - EDGE))
                chances = chances * density / (chances @ density)
            chances = chances @ TRANSITION
    np.testing.assert_allclose(found.values[:, 0], expected, rtol=1e-9, atol=1e-9)
    shown = expected[np.isfinite(expected)]
    reference = stats.kstest(shown, "norm").statistic
    np.testing.assert_allclose(found.distance, reference, rtol=1e-9)
    follows = np.arange(800) % 300 != 0
    follows[600] = True
    pairs = follows[1:] & np.isfinite(expected[1:] + expected[:-1])
    away = expected - shown.mean()
    assert found.autocorrelation[0] == pytest.approx(np.mean((away[1:] * away[:-1])[pairs]) / shown.var(), rel=1e-9)


def _of_states(known, y):
    """`P(Y < y)`, `P(Y <= y)` and the density, of every state."""
    if known is None:
        at = stats.norm(PARTS["means"], PARTS["scales"])
        below, density = (np.sum(PARTS["weights"] * each, axis=1) for each in (at.cdf(y), at.pdf(y)))
        return below, below, density
    if hasattr(known, "pmf") and isinstance(known.dist, stats.rv_discrete):
        return known.cdf(y - 1), known.cdf(y), known.pmf(y)
    return known.cdf(y), known.cdf(y), known.pdf(y)


def test_residual_quantiles_lie_on_the_diagonal_for_the_right_model_only(known, posterior):
    values = np.asarray(known.sequences.rows(0, known.sequences.length).values)
    inside = []
    for data in (values, 2.0 * values):
        expected, found, (lower, upper) = quantiles(residuals(posterior.model, posterior.centre, open_data(data)))
        inside.append(np.mean((found >= lower) & (found <= upper)))
        assert (np.diff(expected) > 0).all()
    assert inside[0] > 0.8 and inside[1] < 0.5


def test_predicted_amplitudes_match_the_data_they_describe(known, posterior):
    found = amplitudes(posterior, known.sequences, bins=20)
    values = np.asarray(known.sequences.rows(0, known.sequences.length).values)[:, 0]
    np.testing.assert_array_equal(found.counts, np.histogram(values, found.edges)[0])
    assert found.outside == len(values) - found.counts.sum()
    np.testing.assert_allclose(found.by_state.sum(axis=0), found.expected)
    assert (found.lower <= found.expected).all() and (found.expected <= found.upper).all()
    # Visits last ten samples, so counts scatter more than Poisson's; a shifted prediction is far outside.
    misfit = np.sum((found.counts - found.expected) ** 2 / (found.expected + 1))
    shifted = np.sum((found.counts - np.roll(found.expected, 2)) ** 2 / (np.roll(found.expected, 2) + 1))
    assert misfit < 0.2 * shifted


def test_bins_of_counts_hold_whole_numbers():
    model = HMM(2, Poisson())
    params = {"transition": np.array([[0.9, 0.1], [0.1, 0.9]]), "rate": np.array([1.0, 6.0])}
    _, values = simulate(model, params, 500, seed=0)
    resolved = model.resolve(values)
    edges = np.arange(-0.5, 10.0)
    found = bin_probabilities(resolved, params, edges)
    np.testing.assert_allclose(found, [poisson.pmf(np.arange(10), rate) for rate in (1.0, 6.0)], atol=1e-6)
