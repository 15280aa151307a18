"""The kernel's weighted distribution functions, against a loop over rows; tables are tested where they are made."""

from unittest.mock import patch

import numpy as np
import pytest
from scipy.special import ndtri

from longhmm.backends import native
from longhmm.backends.mixed import Rows, mix
from longhmm.posterior.diagnostics.cdf_tables import Table

N = 700


@pytest.mark.parametrize("states", [1, 2, 3, 8, 17])
def test_counts_are_mixed_row_by_row(states):
    rng = np.random.default_rng(states)
    padded = next((each for each in (2, 4, 8) if states <= each), 24)
    numbers = np.zeros((5, 2, padded))
    numbers[:, 0, :states] = np.sort(rng.random((5, states)), axis=0) * 0.5
    numbers[:, 1, :states] = 0.1 * rng.random((5, states))
    slot = np.array([[0, 1, 2, -1, 4]] * 2, np.int32)
    table = Table(3.0, 1.0, 0.0, 0, 0, slot, numbers)
    before, transition = rng.dirichlet(np.ones(states), N), np.zeros((states, padded))
    transition[:, :states] = rng.dirichlet(np.ones(states), states)
    initial = np.zeros(padded)
    initial[:states] = 1 / states
    values, spread = rng.integers(2, 9, (N, 1)).astype(float), rng.random((N, 1))
    values[5], path, opens = np.nan, rng.integers(states, size=N), np.array([0, 300])
    results = list(np.zeros((2, 1, N)))
    asked = Rows(np.roll(before, -1, axis=0), before[0].copy(), transition, initial, opens, values, spread, path)
    if (found := mix([table], asked, 1e-5, N, results)) is None:
        pytest.skip(native.status())
    predicted = before @ transition
    predicted[opens] = initial
    assert found.lowest == [2.0]
    np.testing.assert_array_equal(found.left, np.flatnonzero(np.isin(values[:, 0], [2, 6, 8])))
    alone = [np.zeros((1, N))]
    assert len(mix([table], asked._replace(values=values.astype(np.float32), path=None), 1e-5, N, alone).left)
    np.testing.assert_array_equal(alone[0], results[0])
    for t in range(N):
        at = values[t, 0] - 3
        if not 0 <= at <= 4 or slot[0, int(at)] < 0:
            assert np.isnan([each[0, t] for each in results]).all()
            continue
        of_states = numbers[int(at), 0] + spread[t, 0] * numbers[int(at), 1]
        below = predicted[t] @ of_states
        expected = [ndtri(below), ndtri(of_states[path[t]])]
        np.testing.assert_allclose([each[0, t] for each in results], expected, rtol=1e-12, atol=1e-13)


def test_the_tails_are_found_in_every_task():
    """Rows without a table's word, among several tasks; quantiles from the middle to the faintest probability."""
    n, chance = 10_000, np.linspace(-1e-5, 1 + 1e-5, 10_000)
    table = Table(0.0, 1.0, 0.0, 0, 0, np.zeros((2, 1), np.int32), np.array([[[0.0, 0.0], [1.0, 1.0]]]))
    one = (np.full((n, 2), 0.5), np.full(2, 0.5), np.full((2, 2), 0.5), np.full(2, 0.5), np.zeros(0, np.int64))
    results = [np.zeros((1, n))]
    found = mix([table], Rows(*one, np.zeros((n, 1)), chance[:, None].copy(), None), 2e-5, n, results)
    if found is None:
        pytest.skip(native.status())
    known = (chance >= 2e-5) & (chance <= 1 - 2e-5)
    np.testing.assert_array_equal(found.left, np.flatnonzero(~known))
    np.testing.assert_array_equal(np.isnan(results[0][0]), ~known)
    np.testing.assert_allclose(results[0][0][known], ndtri(chance[known]), rtol=1e-12, atol=1e-13)


def test_without_the_kernel_nothing_is_written():
    with patch.object(native, "available", lambda: False):
        assert mix([], Rows(*[np.zeros((1, 1))] * 6, None, None), 1e-5, 1, []) is None
