"""The HDF5 of tMAVEN."""

import h5py
import numpy as np
import pytest

import longhmm as lh
from data.formats.molecules import LENGTHS, TRACES, is_traces
from longhmm.data.formats import open_source
from longhmm.errors import DataError


def write_tmaven(path, names=("first",), lists=True):
    raw = np.zeros((3, 12, 2))
    begin = np.array([0, 2, 4])
    for index, trace in enumerate(TRACES):
        raw[index] = 7.0
        raw[index, begin[index] : begin[index] + len(trace)] = trace
    with h5py.File(path, "w") as file:
        for name in names:
            file.create_group(name).attrs["format"] = "SMD"
            file[f"{name}/data/raw"] = raw
            file[f"{name}/data/source_index"] = np.zeros(3, int)
            if lists:
                file[f"{name}/tMAVEN/pre_list"], file[f"{name}/tMAVEN/post_list"] = begin, begin + LENGTHS
                file[f"{name}/tMAVEN/classes"] = np.zeros(3, int)


def test_tmaven(tmp_path):
    write_tmaven(tmp_path / "a.hdf5")
    is_traces(lh.open_data(tmp_path / "a.hdf5"))
    is_traces(lh.open_data(tmp_path / "a.hdf5", dataset="first"))
    write_tmaven(tmp_path / "b.hdf5", ("first", "second"))
    is_traces(lh.open_data(tmp_path / "b.hdf5", dataset="/second"))
    with pytest.raises(DataError, match=r"several sets of molecules; choose one .* from \['first', 'second'\]"):
        open_source(tmp_path / "b.hdf5")
    assert open_source(tmp_path / "b.hdf5", dataset="first/data/source_index").length == 3  # an array, as ever
    write_tmaven(tmp_path / "c.hdf5", lists=False)
    assert np.diff(lh.open_data(tmp_path / "c.hdf5").offsets).tolist() == [12] * 3
