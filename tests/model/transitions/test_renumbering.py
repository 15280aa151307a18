"""States keep their numbers, or exchange them where a kinetic scheme looks the same."""

import numpy as np
import pytest

from longhmm.errors import ModelError
from longhmm.model.transitions.rates import Rates

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
