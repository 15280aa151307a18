"""The kernel's weighted distribution functions, against a loop over rows; tables are tested where they are made."""

from unittest.mock import patch

import numpy as np
import pytest
from scipy.special import ndtri

from longhmm.backends import native
from longhmm.backends.mixed import Mixed
from longhmm.posterior.diagnostics.cdf_tables import Table

N = 700


@pytest.fixture(params=["kernel", "host"])
def way(request):
    with patch.object(Mixed, "add", Mixed._on_host if request.param == "host" else Mixed.add):
        if request.param == "kernel" and not native.available():
            pytest.skip(native.status())
        yield request.param


@pytest.mark.parametrize("states", [1, 2, 3, 8, 17])
def test_counts_are_mixed_row_by_row(states, way):
    rng = np.random.default_rng(states)
    padded = next((each for each in (2, 4, 8) if states <= each), 24)
    numbers = np.zeros((5, 2, padded))
    numbers[:, 0, :states] = np.sort(rng.random((5, states)), axis=0) * 0.5
    numbers[:, 1, :states] = 0.1 * rng.random((5, states))
    slot = np.array([[0, 1, 2, -1, 4]] * 2, np.int32)
    table = Table(3.0, 1.0, 0.0, 0, 0, slot, numbers)
    predicted = rng.dirichlet(np.ones(states), N)
    values, spread = rng.integers(2, 9, (N, 1)).astype(float), rng.random((N, 1))
    values[5], path = np.nan, rng.integers(states, size=N)
    found = Mixed([table], values, spread, path, 1e-5)
    alone = Mixed([table], values.astype(np.float32), spread, None, 1e-5)
    for start, stop in ((0, 300), (300, N)):
        found.add(predicted[start:stop], start)
        alone.add(predicted[start:stop], start)
    assert found.lowest == [2.0]
    untold = np.flatnonzero(np.isin(values[:, 0], [2, 6, 8]))
    for at, before in (found.left(), alone.left()):
        np.testing.assert_array_equal(at, untold)
        np.testing.assert_array_equal(before[:, :states], predicted[untold])
    np.testing.assert_array_equal(alone.quantiles, found.quantiles)
    assert alone.given.size == 0
    for t in range(N):
        at, results = values[t, 0] - 3, [each[0, t] for each in (found.quantiles, found.given)]
        if not 0 <= at <= 4 or slot[0, int(at)] < 0:
            assert np.isnan(results).all()
            continue
        of_states = numbers[int(at), 0] + spread[t, 0] * numbers[int(at), 1]
        expected = [ndtri(predicted[t] @ of_states[:states]), ndtri(of_states[path[t]])]
        np.testing.assert_allclose(results, expected, rtol=1e-12, atol=1e-13)


def test_the_tails_are_found_in_every_task(way):
    """Rows without a table's word, among several tasks; quantiles from the middle to the faintest probability."""
    n, chance = 10_000, np.linspace(-1e-5, 1 + 1e-5, 10_000)
    table = Table(0.0, 1.0, 0.0, 0, 0, np.zeros((2, 1), np.int32), np.array([[[0.0, 0.0], [1.0, 1.0]]]))
    found = Mixed([table], np.zeros((n, 1)), chance[:, None].copy(), None, 2e-5)
    found.add(np.full((n, 2), 0.5), 0)
    known = (chance >= 2e-5) & (chance <= 1 - 2e-5)
    np.testing.assert_array_equal(found.left()[0], np.flatnonzero(~known))
    np.testing.assert_array_equal(np.isnan(found.quantiles[0]), ~known)
    np.testing.assert_allclose(found.quantiles[0, known], ndtri(chance[known]), rtol=1e-12, atol=1e-13)


def test_a_block_that_is_begun_again_counts_once(way):
    """What is left of a block is forgotten until it is settled."""
    table = Table(0.0, 1.0, 0.0, 0, 0, np.full((2, 1), -1, np.int32), np.zeros((1, 2, 2)))
    found = Mixed([table], np.zeros((4, 1)), np.zeros((4, 1)), None, 2e-5)
    found.add(np.full((2, 2), 0.5), 0)
    found._n_left[0] = 4  # as a block leaves it that has to be run again
    found.add(np.full((2, 2), 0.5), 2)
    np.testing.assert_array_equal(found.left()[0], np.arange(4))
