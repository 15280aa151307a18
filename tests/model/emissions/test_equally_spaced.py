"""Levels with one distance: distributions of the states, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import longhmm as lh

RATES = np.array([3.0, 5.0])
PAIR = lh.Channels(2, "C <-> O", dt=0.05)
PARAMS = {"rates": RATES, "base": [0.5], "step": [1.0], "sd": [0.2, 0.25, 0.3]}


def test_distributions_of_levels():
    emission = lh.EquallySpaced(PAIR.levels)
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value, float) for name, value in PARAMS.items()}
        values = jnp.asarray([[0.4], [2.2]])
        mean, sd = 0.5 + np.arange(3), np.array(PARAMS["sd"])
        np.testing.assert_allclose(
            emission.log_density(params, values), stats.norm.logpdf(values, mean, sd), rtol=1e-12
        )
        np.testing.assert_allclose(emission.cdf(params, values)[0][..., 0], stats.norm.cdf(values, mean, sd), rtol=1e-9)


def test_rare_levels_are_found_from_groups_of_like_size():
    """Half of the rows at the lowest level, one in a hundred at the highest: quarters of the rows are not levels."""
    rng = np.random.default_rng(3)
    levels = rng.choice(4, size=3000, p=[0.5, 0.37, 0.12, 0.01])
    y = -0.03 + 1.07 * levels + np.array([0.38, 0.27, 0.34, 0.28])[levels] * rng.normal(size=3000)
    emission = lh.EquallySpaced(range(4))
    start = emission.fit(np.array_split(np.sort(y)[:, None], 4))
    assert start["base"][0] == pytest.approx(-0.03, abs=0.1)
    assert start["step"][0] == pytest.approx(1.07, abs=0.1)
    np.testing.assert_allclose(start["sd"], 0.33, rtol=0.1)  # one for all


@pytest.mark.parametrize("y", [np.zeros(9), np.random.default_rng(4).normal(size=400)])
def test_values_without_levels_give_a_start_all_the_same(y):
    start = lh.EquallySpaced(range(3)).fit(np.array_split(np.sort(y)[:, None], 3))
    assert all(np.all(np.isfinite(each)) for each in start.values())
    assert start["step"][0] > 0 and np.all(start["sd"] > 0)
