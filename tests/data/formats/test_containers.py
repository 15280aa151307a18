"""Array files: .npy, .npz, Zarr, HDF5 and Parquet."""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from longhmm.data.formats import open_source
from longhmm.data.sequences import open_data
from longhmm.errors import DataError

VALUES = np.random.default_rng(0).normal(size=(50, 3))


def _write(path: Path, values: np.ndarray) -> Path:
    match path.suffix:
        case ".npy":
            np.save(path, values)
        case ".npz":
            np.savez_compressed(path, y=values)
        case ".zarr":
            zarr.create_array(str(path), data=values, chunks=(7, 2))
        case ".h5":
            with h5py.File(path, "w") as file:
                file["group/y"] = values
                file["note"] = "text"
        case ".parquet":
            pq.write_table(pa.table({f"c{i}": values[:, i] for i in range(values.shape[1])}), path, row_group_size=8)
        case ".csv":
            np.savetxt(path, values, delimiter=",", fmt="%.18g" if values.dtype.kind == "f" else "%d")
    return path


@pytest.mark.parametrize("ending", [".npy", ".npz", ".zarr", ".h5", ".parquet", ".csv"])
def test_every_kind_reads_what_was_written(tmp_path, ending):
    path = _write(tmp_path / f"y{ending}", VALUES)
    for given in (path, str(path)):
        source = open_source(given)
        assert (source.length, source.dim, source.dtype) == (50, 3, np.float64)
        assert str(path) in source.name
        for start, stop in [(0, 50), (0, 1), (49, 50), (6, 23), (30, 30)]:
            np.testing.assert_array_equal(source.read(start, stop), VALUES[start:stop])
    some = open_source(path, columns=[2, 0])
    np.testing.assert_array_equal(some.read(5, 20), VALUES[5:20, [2, 0]])
    again = pickle.loads(pickle.dumps(some))
    np.testing.assert_array_equal(again.read(5, 20), VALUES[5:20, [2, 0]])


@pytest.mark.parametrize("ending", [".npy", ".npz", ".zarr", ".h5", ".parquet", ".csv"])
def test_integers_stay_integers(tmp_path, ending):
    source = open_source(_write(tmp_path / f"y{ending}", np.arange(-20, 20).reshape(20, 2)))
    assert source.dtype == np.int64
    np.testing.assert_array_equal(source.read(3, 5), [[-14, -13], [-12, -11]])


def test_a_hundred_gigabytes_open_at_once(tmp_path):
    path, length = tmp_path / "long.npy", 100 * 2**30 // 8
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (length,)})
        header = file.tell()
    os.truncate(path, header + 8 * length)
    with path.open("r+b") as file:
        file.seek(header + 8 * (length - 3))
        file.write(np.array([1.5, np.nan, -2.5]).tobytes())
    began = time.perf_counter()
    data = open_data(path)
    block = data.rows(length - 4, length)
    assert time.perf_counter() - began < 1.0
    np.testing.assert_array_equal(block.values[:, 0], [0.0, 1.5, np.nan, -2.5])
    np.testing.assert_array_equal(block.observed[:, 0], [True, True, False, True])
    assert len(pickle.dumps(data)) < 10_000  # a pickle holds the path, not the contents


def test_fortran_order(tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(VALUES))
    np.testing.assert_array_equal(open_source(tmp_path / "f.npy").read(7, 9), VALUES[7:9])


def test_thousands_of_files_share_few_handles(tmp_path):
    paths = []
    for i in range(200):
        paths.append(tmp_path / f"{i}.npy")
        np.save(paths[-1], np.full(3, float(i)))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    data = open_data(paths)
    np.testing.assert_array_equal(data.rows(0, 600).values[:, 0], np.repeat(np.arange(200.0), 3))
    np.testing.assert_array_equal(data.rows(599, 600).values, [[199.0]])
    np.testing.assert_array_equal(data.rows(0, 2).values, [[0.0], [0.0]])
    if before:
        assert len(os.listdir("/proc/self/fd")) - before < 100


def test_open_hdf5_and_zarr_objects(tmp_path):
    with h5py.File(_write(tmp_path / "y.h5", VALUES)) as file:
        for given, dataset in [(file, None), (file["group"], "y"), (file["group/y"], None)]:
            np.testing.assert_array_equal(open_source(given, dataset=dataset).read(3, 9), VALUES[3:9])
    array = zarr.open(_write(tmp_path / "y.zarr", VALUES))
    np.testing.assert_array_equal(open_source(array).read(3, 9), VALUES[3:9])
    np.testing.assert_array_equal(open_source(array.store).read(3, 9), VALUES[3:9])
    group = zarr.create_group(str(tmp_path / "folder"))
    group.create_group("inner").create_array("z", data=VALUES)
    for given in (group, tmp_path / "folder"):  # a Zarr folder is known by its contents, too
        np.testing.assert_array_equal(open_source(given).read(3, 9), VALUES[3:9])
        np.testing.assert_array_equal(open_source(given, dataset="inner/z").read(3, 9), VALUES[3:9])


@pytest.mark.parametrize("ending", [".npz", ".h5", ".zarr"])
def test_several_datasets(tmp_path, ending):
    path = tmp_path / f"y{ending}"
    if ending == ".npz":
        np.savez(path, a=VALUES, b=VALUES[:9])
    elif ending == ".h5":
        with h5py.File(path, "w") as file:
            file["a"], file["b"] = VALUES, VALUES[:9]
    else:
        group = zarr.create_group(str(path))
        group.create_array("a", data=VALUES)
        group.create_array("b", data=VALUES[:9])
    assert open_source(path, dataset="b").length == 9
    with pytest.raises(DataError, match=rf"y{ending} holds several arrays; choose one with dataset=.*\['a', 'b'\]"):
        open_source(path)
    with pytest.raises(DataError, match=rf"y{ending} has no array named 'c'; dataset= must be one of \['a', 'b'\]"):
        open_source(path, dataset="c")


def test_containers_without_numbers(tmp_path):
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["note"] = "text"
    with pytest.raises(DataError, match=r"t.h5 holds no numeric array .*\['note'\]"):
        open_source(tmp_path / "t.h5")
    with pytest.raises(DataError, match=r"dataset='y' was given but .*a.zarr is itself an array; leave dataset out"):
        open_source(_write(tmp_path / "a.zarr", VALUES), dataset="y")
    with pytest.raises(DataError, match=r"dataset='y' applies to .npz, Zarr and HDF5 containers, not to .*a.npy"):
        open_source(_write(tmp_path / "a.npy", VALUES), dataset="y")


def test_files_that_end_early(tmp_path):
    npy = _write(tmp_path / "cut.npy", VALUES)
    os.truncate(npy, npy.stat().st_size - 30 * 24 + 5)
    with pytest.raises(DataError, match=r"cut.npy ends early, after row 20 of 50 \(485 of 1,200 bytes\); copy or"):
        open_source(npy)
    os.truncate(npy, 20)
    with pytest.raises(DataError, match=r"cut.npy is not a readable .npy file .* write it again with numpy.save"):
        open_source(npy)
    for ending, kind in [(".npz", ".npz file"), (".h5", "HDF5 file"), (".parquet", "Parquet file")]:
        path = _write(tmp_path / f"cut{ending}", VALUES)
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(DataError, match=rf"cut{ending} is not a readable {kind}.*write it again"):
            open_source(path)


def test_damage_that_is_met_only_when_reading(tmp_path):
    path = _write(tmp_path / "y.parquet", VALUES)
    metadata = pq.ParquetFile(path).metadata
    column = metadata.row_group(2).column(0)
    with path.open("r+b") as file:
        file.seek(column.dictionary_page_offset or column.data_page_offset)
        file.write(b"\xff" * column.total_compressed_size)
    source = open_source(path)
    np.testing.assert_array_equal(source.read(0, 16), VALUES[:16])
    with pytest.raises(DataError, match=r"rows 16 to 24 \(row group 2\) of .*y.parquet could not be read .*copy it"):
        source.read(10, 20)
    path = _write(tmp_path / "y.npy", VALUES)
    source = open_source(path)
    os.truncate(path, 700)
    with pytest.raises(DataError, match=r"y.npy ends early, after row 23 of 50"):
        source.read(0, 50)


def test_objects_in_files(tmp_path):
    np.save(tmp_path / "o.npy", np.array([1, None], dtype=object))
    np.savez(tmp_path / "o.npz", y=np.array([1, None], dtype=object))
    with pytest.raises(DataError, match=r"o.npy holds Python objects; save it as an array of numbers"):
        open_source(tmp_path / "o.npy")
    with pytest.raises(DataError, match=r"o.npz is not a readable .npz file .* arrays of numbers"):
        open_source(tmp_path / "o.npz")


def test_missing_libraries_are_named(tmp_path, monkeypatch):
    h5, parquet = _write(tmp_path / "y.h5", VALUES), _write(tmp_path / "y.parquet", VALUES)
    monkeypatch.setitem(sys.modules, "h5py", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"y.h5 needs h5py; install it with: pip install h5py$"):
        open_source(h5)
    with pytest.raises(DataError, match=r"y.parquet needs pyarrow; install it with: pip install pyarrow$"):
        open_source(parquet)


def test_parquet_nulls_types_and_names(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {
        "when": pa.array(["a", "b", "c"]),
        "count": pa.array([1, 2, 3], pa.int16()),
        "gaps": pa.array([4, None, 6], pa.int64()),
        "flag": pa.array([True, False, True]),
        "level": pa.array([0.5, None, 1.5], pa.float32()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=2)
    assert open_source(path, columns="count").dtype == np.int16
    assert open_source(path, columns="flag").dtype == np.uint8
    assert open_source(path, columns="level").dtype == np.float32
    two = open_source(path, columns=["gaps", "count"])
    np.testing.assert_array_equal(two.read(0, 3), [[4, 1], [np.nan, 2], [6, 3]])
    with pytest.raises(DataError, match=r"column 'when' of .*t.parquet must be numeric .*\['count', 'gaps', 'level'\]"):
        open_source(path)
    with pytest.raises(DataError, match=r"t.parquet has no column 'x'; columns= must be taken from \['when', "):
        open_source(path, columns=["x"])
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), path)
    with pytest.raises(DataError, match=r"t.parquet is empty \(no rows\)"):
        open_source(path)


def test_parquet_decodes_only_the_row_groups_it_needs(tmp_path, monkeypatch):
    source = open_source(_write(tmp_path / "y.parquet", VALUES))
    decoded: list[int] = []
    original = pq.ParquetFile.read_row_group
    watched = lambda self, group, **how: decoded.append(group) or original(self, group, **how)  # noqa: E731
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", watched)
    source.read(9, 15)
    source.read(8, 16)
    assert decoded == [1]
    source.read(20, 30)
    assert decoded == [1, 2, 3]
    source.read(32, 50)
    source.read(9, 10)  # long since let go
    assert decoded == [1, 2, 3, 4, 5, 6, 1]
