"""Many sources made into one, with the masks beside them."""

import numpy as np

from longhmm.data.sequences import open_data

NAN = np.nan


def test_dtypes_of_many_sequences_are_reconciled():
    data = open_data([np.array([1, 2]), np.array([0.5], np.float32)])
    assert data.dtype == np.float64
    assert open_data([np.array([1, 2], np.int8), np.array([300], np.int16)]).dtype == np.int16


def test_nan_and_mask_add_up():
    data = open_data(np.array([NAN, 1.0, 2.0]), mask=[False, True, False])
    np.testing.assert_array_equal(data.rows(0, 3).observed[:, 0], [False, False, True])


def test_lists_of_masks():
    pieces = [np.zeros((2, 2)), np.zeros((3, 2))]
    rows = [np.array([True, False]), np.array([False, False, True])]
    np.testing.assert_array_equal(
        open_data(pieces, mask=rows).rows(0, 5).observed, [[0, 0], [1, 1], [1, 1], [1, 1], [0, 0]]
    )
    mixed = [rows[0], np.array([[0, 1], [0, 0], [0, 0]], bool)]
    np.testing.assert_array_equal(
        open_data(pieces, mask=mixed).rows(0, 5).observed, [[0, 0], [1, 1], [1, 0], [1, 1], [1, 1]]
    )
    flat = open_data(pieces, mask=np.concatenate(rows))
    np.testing.assert_array_equal(flat.rows(0, 5).observed, [[0, 0], [1, 1], [1, 1], [1, 1], [0, 0]])
