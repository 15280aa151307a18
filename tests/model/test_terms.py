"""Linear terms: groups of columns with one variance, and the prior of their coefficients."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.integrate import quad

from model.smooth_terms import CYCLIC, NATURAL, terms


def test_groups_share_one_scale_and_one_variance():
    linear = terms(f"{NATURAL} + hour + s(ID, bs='re')")
    assert linear.groups == ((1, 2, 3, 4), (6, 7, 8, 9, 10))
    assert linear.columns[0].endswith("[linear]") and linear.columns[5] == "hour"
    for group in map(list, linear.groups):
        assert np.ptp(linear.spread[group]) == 0
    assert terms("~ s(temp, k=6):hour").groups == ((1, 2, 3, 4),)
    assert terms("~ bs(temp, df=5) + C(ID)").groups == ()


def test_the_variance_of_a_group_is_integrated_out():
    linear, slope = terms(CYCLIC), dist.Normal(0.0, 2.0)
    values = np.random.default_rng(2).normal(0.0, 0.7, 7)
    with jax.enable_x64(True):
        found = float(linear.log_prior(slope, jnp.asarray(values)))
        drawn = np.asarray(linear.draw(jax.random.key(1), slope, (5000,)))
    scale = 0.25 * 2.0
    law = stats.invgamma(0.5, scale=0.5 * scale**2)

    def at(log_variance):
        variance = np.exp(log_variance)
        return law.pdf(variance) * variance * np.exp(stats.norm.logpdf(values, 0.0, np.sqrt(variance)).sum())

    assert found == pytest.approx(np.log(quad(at, -15, 15, limit=500)[0]), rel=1e-6)
    assert stats.kstest(drawn[:, 0] / scale, stats.cauchy.cdf).pvalue > 1e-3  # each alone is Cauchy
    assert stats.kstest(drawn[:, 0] / drawn[:, 1], stats.cauchy.cdf).pvalue > 1e-3  # as of two normals
