"""Bulk effective sizes against ArviZ, and against the closed form of an autoregression."""

import arviz
import numpy as np

from longhmm.run.effective_size import bulk_effective_size


def autoregression(rng, rho, shape):
    noise = rng.normal(size=shape)
    draws = np.empty(shape)
    draws[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        draws[:, t] = rho * draws[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return draws


def test_agrees_with_arviz_and_the_closed_form():
    rng = np.random.default_rng(0)
    columns = [autoregression(rng, rho, (4, 1000)) for rho in (-0.5, 0.0, 0.5, 0.9)]
    columns.append(np.round(columns[2]))  # ties
    columns.append(columns[3] + np.arange(4)[:, None])  # chains that disagree
    found = bulk_effective_size(np.stack(columns, axis=2))
    expected = [float(np.asarray(arviz.ess(column, method="bulk"))) for column in columns]
    np.testing.assert_allclose(found[1:], expected[1:], rtol=0.01)
    np.testing.assert_allclose(found[0], expected[0], rtol=0.15)  # ArviZ treats the last lag of antithetic chains apart
    np.testing.assert_allclose(found[3], 4000 * (1 - 0.9) / (1 + 0.9), rtol=0.35)


def test_constant_draws_count_in_full():
    assert bulk_effective_size(np.ones((2, 50, 1)))[0] == 100
