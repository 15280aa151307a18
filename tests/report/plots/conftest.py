"""A posterior that is known, for pictures of it."""

import numpy as np
import pytest

from posterior.fakes import known_states


@pytest.fixture(scope="session")
def known():
    return known_states(3000)


@pytest.fixture(scope="session")
def posterior(known):
    return known.posterior()


@pytest.fixture(scope="session")
def path(known):
    return known.sequences.rows(0, known.sequences.length).states


@pytest.fixture(scope="session")
def laws(path):
    return np.eye(2, dtype=np.float32)[path]
