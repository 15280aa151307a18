"""Identities that hold pass in silence, others are named in a sentence."""

import numpy as np
import pytest

from longhmm.testing.identities import close, finite, require


def test_what_holds_passes_and_what_does_not_is_named():
    require(True, "one is one")
    finite([0.0, -1e300], "numbers are finite")
    close([1.0, np.inf], [1.0 + 1e-9, np.inf], "both are the same")
    with pytest.raises(AssertionError, match=r"^One is two\.$"):
        require(False, "one is two")
    with pytest.raises(AssertionError, match=r"^Numbers are finite\.$"):
        finite([0.0, np.nan], "numbers are finite")
    with pytest.raises(AssertionError, match="largest difference 1e-06"):
        close([1.0], [1.0 + 1e-6], "both are the same")
    with pytest.raises(AssertionError, match=r"shapes \(1,\) and \(2,\)"):
        close([1.0], [1.0, 1.0], "both are the same")
