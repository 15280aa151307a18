"""Transitions that were counted, and the parameter that explains them best."""

import logging

import jax
import numpy as np
import pytest

import longhmm as lh
from longhmm.model.transitions.counted import most_probable

MOVES = lh.Rates("1 <-> 2 <-> 3", dt=0.1)
RATES = np.array([0.5, 1.5, 1.0, 2.0])


@pytest.fixture
def counts() -> np.ndarray:
    """So many that the prior hardly matters, in exactly the shares that these rates imply."""
    with jax.enable_x64(True):
        return 1e7 * np.asarray(MOVES.typical(RATES))


def test_rates_are_found(counts):
    np.testing.assert_allclose(most_probable(MOVES, counts), RATES, rtol=1e-3)


def test_nothing_nearby_is_more_probable(counts):
    few, step = counts / 1e6, 1e-3

    def logs(rates):
        with jax.enable_x64(True):
            return float(np.sum(few * np.log(MOVES.typical(rates))) + MOVES.log_prior(rates))

    best = most_probable(MOVES, few)
    for each in np.eye(len(RATES)):
        assert logs(best) > max(logs(best * np.exp(step * each)), logs(best * np.exp(-step * each)))


def test_a_second_search_compiles_nothing(counts, caplog):
    most_probable(MOVES, counts)
    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
        most_probable(lh.Rates("1 <-> 2 <-> 3", dt=0.1), counts[::-1, ::-1])
    assert not [each.getMessage() for each in caplog.records if "Finished XLA compilation" in each.getMessage()]
