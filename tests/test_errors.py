"""Errors that a user may meet: all of one kind, which is a ValueError."""

import numpy as np
import pytest

from longhmm.errors import DataError, ImpossibleObservationError, LongHMMError, ModelError, check_whole


@pytest.mark.parametrize("error", [DataError, ModelError, ImpossibleObservationError])
def test_every_error_is_one_of_ours_and_a_wrong_value(error):
    assert issubclass(error, LongHMMError) and issubclass(error, ValueError)


@pytest.mark.parametrize("value", [True, 2.0, "3", None, 1, np.int64(1), np.float64(2)])
def test_what_is_no_whole_number_is_named(value):
    with pytest.raises(DataError, match=r"^draws must be a whole number of at least 2, got .*\.$"):
        check_whole("draws", value, 2, DataError)


@pytest.mark.parametrize("value", [2, 10**12, np.int64(2), np.uint8(7)])
def test_whole_numbers_of_every_kind_pass(value):
    check_whole("draws", value, 2)
