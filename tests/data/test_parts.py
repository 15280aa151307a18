"""Parts of longer data."""

import numpy as np
import pytest

from longhmm.data.parts import gathered, split
from longhmm.data.sequences import open_data
from longhmm.errors import DataError


def test_one_sequence_is_cut_in_time_and_many_by_whole_sequences(tmp_path):
    values = np.arange(100.0)
    np.save(tmp_path / "y.npy", values)
    for source in (values, tmp_path / "y.npy"):
        sequences = open_data(source, states=np.arange(100), mask=values == 95)
        train, test, continues = split(sequences, 0.1)
        assert continues and train.length == 90
        block = test.rows(0, 10)
        assert block.values[:, 0].tolist() == values[90:].tolist()
        assert block.states.tolist() == list(range(90, 100))
        assert block.observed[:, 0].tolist() == [True] * 5 + [False] + [True] * 4
    train, test, continues = split(open_data([values[:10], values[10:50], values[50:70], values[70:]]), 0.3)
    assert not continues
    assert np.diff(train.offsets).tolist() == [10, 40, 20]
    assert np.diff(test.offsets).tolist() == [30]
    assert test.rows(0, 1).values[0, 0] == 70.0
    with pytest.raises(DataError, match="held_out"):
        split(train, 1.5)


def test_stretches_are_gathered_with_all_that_runs_alongside(tmp_path):
    """Cut where sequences end, in memory or from files."""
    np.save(tmp_path / "y.npy", np.arange(12.0))
    for source in (np.arange(12.0), tmp_path / "y.npy"):
        data = open_data(source, lengths=[5, 7], states=np.arange(12), covariates=-np.arange(12.0))
        found = gathered(data, [(3, 9), (10, 12)])
        assert found.in_memory and found.offsets.tolist() == [0, 2, 6, 8]
        rows = found.rows(0, 8)
        assert rows.values[:, 0].tolist() == rows.states.tolist() == [3, 4, 5, 6, 7, 8, 10, 11]
        assert rows.covariates[:, 0].tolist() == [-3, -4, -5, -6, -7, -8, -10, -11]
