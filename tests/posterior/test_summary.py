"""Levels of states, against their closed form."""

import numpy as np
import pytest
from scipy.stats import norm

from longhmm.posterior.summary import level_draws, levels
from posterior.fakes import known_states


@pytest.fixture(scope="module")
def known():
    return known_states()


@pytest.fixture(scope="module")
def posterior(known):
    return known.posterior()


def test_levels_have_the_interval_of_the_closed_form(known, posterior):
    found = levels(posterior, interval=0.9)
    np.testing.assert_allclose(found["level"], known.mean, atol=5 * known.sd.max() / np.sqrt(2000))
    for end, sign in (("level_lower", -1), ("level_upper", 1)):
        wanted = known.mean + sign * norm.isf(0.05) * known.sd
        np.testing.assert_allclose(found[end], wanted, atol=0.25 * known.sd.max())
    assert level_draws(posterior, 10).shape == (10, 2)
