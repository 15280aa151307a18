"""States keep their numbers, or exchange them where a kinetic scheme looks the same."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import ModelError
from longhmm.model.transitions.rates import Rates
from longhmm.model.transitions.renumbering import orders

CHAIN = Rates("1 <-> 2 <-> 3", dt=0.1)
RATES = np.array([1.0, 0.5, 2.0, 1.0])


def test_states_are_renumbered_where_the_scheme_looks_the_same():
    assert CHAIN.symmetries == ((0, 1, 2), (2, 1, 0))
    np.testing.assert_array_equal(CHAIN.renumbered(RATES, np.array([2, 1, 0])), RATES[[3, 2, 1, 0]])
    with pytest.raises(ModelError, match=r"order must leave the scheme '1 <-> 2, 2 <-> 3' as it is, got \[1, 0, 2\]."):
        CHAIN.renumbered(RATES, np.array([1, 0, 2]))
    assert Rates("1 <-> 2 <-> 3", dt=1, fixed={"1 -> 2": 2.0}).symmetries == ((0, 1, 2),)
    assert Rates("1 <-> 2 <-> 3", dt=1, tied=[("1 -> 2", "3 -> 2")]).symmetries == ((0, 1, 2), (2, 1, 0))
    assert len(Rates("1 <-> 2 <-> 3 <-> 1", dt=1).symmetries) == 6


def test_levels_that_states_share_restrict_their_numbers():
    def tied(levels, **options):
        return lh.HMM(len(levels), lh.Tied(lh.Gaussian(), levels), **options)

    assert orders(lh.HMM(3, lh.Gaussian())) is None
    assert orders(tied((0, 1, 1))) == ((0, 1, 2), (0, 2, 1))
    assert len(orders(tied((0, 0, 1, 1)))) == 8
    assert orders(tied((0, 1, 1), transitions=CHAIN)) == ((0, 1, 2),)
    assert orders(tied((0, 1, 0), transitions=CHAIN)) == ((0, 1, 2), (2, 1, 0))
    assert orders(tied((0,) * 8)) == (tuple(range(8)),)  # too many to look through
