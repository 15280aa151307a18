"""Rows before each row, against their definition row by row."""

import numpy as np
import pytest

from longhmm.data.lags import rows_before, rows_before_any
from longhmm.data.sequences import open_data

LAGS = 3
RNG = np.random.default_rng(0)
PARTS = [RNG.normal(size=(rows, 2)) for rows in (1, 7, 2, 5)]


def by_definition(sequences, context, row):
    values, begin = np.concatenate(PARTS), max(each for each in sequences.offsets if each <= row)
    before = np.full((LAGS, 2), np.nan)
    for back in range(1, LAGS + 1):
        if row - back >= begin:
            before[back - 1] = values[row - back]
        elif begin == 0 and context is not None:
            before[back - 1] = context[back - row - 1]
    return before


@pytest.mark.parametrize("context", [None, np.arange(6.0).reshape(3, 2)])
def test_rows_before_rows_of_ragged_sequences(context):
    sequences = open_data(PARTS)
    sequences.context = context
    expected = np.array([by_definition(sequences, context, row) for row in range(15)])
    for start in range(15):
        for stop in range(start, 16):
            seen = np.concatenate(PARTS)[max(0, start - LAGS) : stop]
            found = rows_before(seen, start, stop, LAGS, sequences.offsets, context)
            np.testing.assert_array_equal(found, expected[start:stop])
    anywhere = RNG.integers(15, size=(4, 5))
    np.testing.assert_array_equal(rows_before_any(sequences, anywhere, LAGS), expected[anywhere])


def test_rows_of_one_sequence_are_not_copied():
    values = RNG.normal(size=(50, 1))
    found = rows_before(values[7:40], 10, 40, LAGS, np.array([0, 50]), None)
    assert np.shares_memory(found, values)
