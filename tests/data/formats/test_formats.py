"""Which function opens a file, and what is said where none does."""

import numpy as np
import pytest

from longhmm.data import formats
from longhmm.data.formats import open_source
from longhmm.data.sequences import open_data
from longhmm.data.source import ArraySource
from longhmm.errors import DataError


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(DataError, match=r"data file '.*none.npy' does not exist; .*\.npy, .*\.parquet, .*\.txt"):
        open_source(tmp_path / "none.npy")
    (tmp_path / "y.mat").write_bytes(b"")
    with pytest.raises(DataError, match=r"y.mat has the unknown ending '.mat'; convert it to one of .*\.npy, "):
        open_source(tmp_path / "y.mat")
    with pytest.raises(DataError, match=r"is a folder, not a data file; pass the files in it as a list"):
        open_source(tmp_path)
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(DataError, match=r"empty.zarr is not a readable Zarr store .*give the folder that zarr wrote"):
        open_source(tmp_path / "empty.zarr")
    np.save(tmp_path / "zero.npy", np.zeros(0))
    with pytest.raises(DataError, match=r"zero.npy is empty \(shape \(0,\)\); pass at least one"):
        open_source(tmp_path / "zero.npy")


def test_a_format_of_ones_own_is_one_function(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "OPENERS", dict(formats.openers()))
    path = tmp_path / "a.words"
    path.write_text("one three two", encoding="utf-8")
    with pytest.raises(DataError, match=r"unknown ending '\.words'; convert it to one of \.abf, \.bdf"):
        open_source(path)

    @formats.opener(".words")
    def open_words(path, columns=None):
        values = [["one", "two", "three"].index(word) + 1.0 for word in path.read_text(encoding="utf-8").split()]
        return ArraySource(values, str(path), columns)

    np.testing.assert_array_equal(open_data(path).rows(0, 3).values, [[1.0], [3.0], [2.0]])
    with pytest.raises(DataError, match=r"dataset='x' applies to .* not to .*a\.words"):
        open_source(path, dataset="x")
    assert ".words" in formats.supported().split(", ")
