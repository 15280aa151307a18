"""What tests of answers share: a posterior whose states are known, and its events."""

import numpy as np
import pytest

from posterior.fakes import known_states


@pytest.fixture(scope="module")
def known():
    return known_states()


@pytest.fixture(scope="module")
def posterior(known):
    return known.posterior()


@pytest.fixture(scope="module")
def table(known, posterior):
    path = np.asarray(known.sequences.rows(0, known.sequences.length).states)
    return posterior.events(known.sequences, path=path, rate=1000.0)
