"""Quantiles of pseudo-residuals, and predicted distributions of observations against the data they describe."""

import numpy as np
from scipy.stats import poisson

from longhmm import Poisson
from longhmm.data.sequences import open_data
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.diagnostics.observations import amplitudes, bin_probabilities, quantiles, residuals


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
