"""Predicted distributions of observations, against the data they describe."""

import numpy as np
import pytest

from longhmm import Poisson
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.amplitudes import amplitudes, bin_probabilities
from posterior.fakes import known_states


@pytest.fixture(scope="module")
def known():
    return known_states()


@pytest.fixture(scope="module")
def posterior(known):
    return known.posterior()


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
    from scipy.stats import poisson

    edges = np.arange(-0.5, 10.0)
    found = bin_probabilities(resolved, params, edges)
    np.testing.assert_allclose(found, [poisson.pmf(np.arange(10), rate) for rate in (1.0, 6.0)], atol=1e-6)
