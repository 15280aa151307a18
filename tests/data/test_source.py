"""Objects in memory and objects that are sliced lazily, opened as sources."""

from __future__ import annotations

import pickle

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from longhmm.data.formats import open_source
from longhmm.errors import DataError


class Recorder:
    """Looks like a very long array, makes up its values, and remembers what was asked for."""

    dtype = np.dtype(np.float64)

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.asked: list[slice] = []

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.asked.append(rows)
        times = np.arange(rows.start, rows.stop, dtype=np.float64)
        return times if len(self.shape) == 1 else np.stack([times + d for d in range(self.shape[1])], axis=1)


def test_one_and_two_dimensional_arrays():
    one = open_source(np.arange(5.0))
    assert (one.length, one.dim, one.dtype, one.in_memory, one.name) == (5, 1, np.float64, True, "the array")
    np.testing.assert_array_equal(one.read(1, 3), [[1.0], [2.0]])
    two = open_source(np.arange(6).reshape(3, 2))
    assert (two.length, two.dim, two.dtype) == (3, 2, np.int64)
    np.testing.assert_array_equal(two.read(0, 3), [[0, 1], [2, 3], [4, 5]])
    assert two.read(2, 2).shape == (0, 2)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("?", "u1"), ("i1", "i1"), ("u2", "u2"), (">i4", "i4"), ("f2", "f4"), (">f4", "f4"), ("f8", "f8"), ("g", "f8")],
)
def test_dtypes(given, kept):
    source = open_source(np.array([0, 1, 1]).astype(given))
    assert source.dtype == np.dtype(kept) and source.dtype.isnative
    np.testing.assert_array_equal(source.read(0, 3)[:, 0], [0, 1, 1])
    assert source.read(0, 3).dtype == source.dtype


def test_arrays_are_neither_copied_nor_frozen():
    array = np.zeros((4, 2))
    source = open_source(array)
    assert np.shares_memory(source.read(0, 4), array)
    with pytest.raises(ValueError, match=r"read-only"):
        source.read(0, 4)[0] = 1
    array[0] = 1  # the caller's own array can still be written to


def test_jax_arrays():
    source = open_source(jnp.arange(4, dtype=jnp.bfloat16))
    assert source.in_memory and source.dtype == np.float32
    np.testing.assert_array_equal(source.read(0, 4)[:, 0], [0, 1, 2, 3])


def test_lists_of_numbers():
    assert open_source([1, 2, 3]).dtype == np.int64
    assert open_source([[1.0, 2.0], [3.0, 4.0]]).dim == 2
    assert open_source([True, False]).dtype == np.uint8


@pytest.mark.parametrize("shape", [(10**12,), (10**12, 3)])
def test_only_the_rows_asked_for_are_sliced(shape):
    recorder = Recorder(*shape)
    source = open_source(recorder)
    assert recorder.asked == [] and not source.in_memory and source.length == 10**12
    block = source.read(10**12 - 3, 10**12)
    assert recorder.asked == [slice(10**12 - 3, 10**12)]
    np.testing.assert_array_equal(block[:, 0], np.arange(10**12 - 3, 10**12))


def test_memory_maps_and_their_views_stay_on_disk(tmp_path):
    mapped = np.memmap(tmp_path / "raw.bin", np.float32, "w+", shape=(100,))
    mapped[:] = np.arange(100)
    for view in (mapped, np.asarray(mapped)[10:]):
        source = open_source(view)
        assert not source.in_memory
        assert type(source.read(3, 5)) is np.ndarray
        np.testing.assert_array_equal(source.read(3, 5)[:, 0], view[3:5])


def test_columns_of_arrays_by_position():
    array = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(open_source(array, columns=[2, 0]).read(0, 4), array[:, [2, 0]])
    np.testing.assert_array_equal(open_source(array, columns=1).read(0, 4), array[:, [1]])
    recorder = Recorder(10, 3)
    np.testing.assert_array_equal(open_source(recorder, columns=[1]).read(2, 4), [[3.0], [4.0]])
    with pytest.raises(DataError, match=r"the array has no column 3; columns= must be taken from \[0, 1, 2\]"):
        open_source(array, columns=[3])
    with pytest.raises(DataError, match=r"columns=\[\] chooses nothing from the array; name at least one"):
        open_source(array, columns=[])


def test_pandas():
    frame = pd.DataFrame({"a": [1.5, np.nan], "b": [1, 2], "ok": [True, False], "when": pd.to_datetime([0, 1])})
    np.testing.assert_array_equal(open_source(frame["a"]).read(0, 2), [[1.5], [np.nan]])
    chosen = open_source(frame, columns=["b", "a"])
    np.testing.assert_array_equal(chosen.read(0, 2), [[1, 1.5], [2, np.nan]])
    assert open_source(frame, columns=["b", "ok"]).dtype == np.int64
    nullable = open_source(pd.Series([1, None, 3], dtype="Int64"))
    np.testing.assert_array_equal(nullable.read(0, 3)[:, 0], [1, np.nan, 3])
    assert open_source(pd.Series([1, 2], dtype="Int64")).dtype == np.int64
    with pytest.raises(DataError, match=r"column 'when' of the array must be numeric .*columns=.*\['a', 'b', 'ok'\]"):
        open_source(frame)


def test_masked_arrays_of_floats_are_filled():
    source = open_source(np.ma.masked_greater(np.array([1.0, 9.0]), 5))
    np.testing.assert_array_equal(source.read(0, 2)[:, 0], [1.0, np.nan])
    with pytest.raises(DataError, match=r"masked array of integers, which cannot hold NaN; pass it with mask="):
        open_source(np.ma.masked_greater(np.array([1, 9]), 5))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1j]), "the array must hold real numbers .* complex128; pass the real and imaginary parts"),
        (np.array([None, 1.0]), "dtype object; convert it to float64 and mark missing values with NaN"),
        (np.array(["a"]), "dtype <U1; convert the text to numbers"),
        (np.array(["2020-01-01"], "M8[D]"), "leave out the times"),
        (np.zeros((2, 2, 2)), r"has 3 dimensions, shape \(2, 2, 2\); reshape it, or pass a list of 2-D arrays"),
        (np.float64(3.0), "has 0 dimensions"),
        (np.zeros((0,)), r"the array is empty \(shape \(0,\)\); pass at least one observation"),
        (np.zeros((3, 0)), "the array is empty"),
        ([1.0, [2.0, 3.0]], "could not be read as one array of numbers .* with NaN for missing values"),
        (3.0, "must be an array, a table, a list of numbers, or the path .*npy.* but is of type float; convert"),
        ({"y": 1}, "is of type dict; convert it to a NumPy array"),
    ],
)
def test_what_cannot_be_data(array, message):
    with pytest.raises(DataError, match=message):
        open_source(array)


def test_an_array_that_lies_on_its_side_is_questioned():
    with pytest.warns(UserWarning, match="has 2 rows and 3000 columns, and rows are times: transpose it"):
        open_source(np.zeros((2, 3000)))


def test_unknown_length():
    with pytest.raises(DataError, match=r"the array has unknown shape \(nan,\); .*compute_chunk_sizes"):
        open_source(Recorder(float("nan")))  # type: ignore[arg-type]


def test_rows_outside():
    for source in (open_source(np.zeros(3)), open_source(Recorder(3))):
        for start, stop in [(-1, 2), (0, 4), (2, 1)]:
            with pytest.raises(DataError, match=f"rows {start} to {stop} of the array were asked for.*0 to 3"):
                source.read(start, stop)


def test_storage_that_fails_or_ends_early():
    class Failing(Recorder):
        def __getitem__(self, rows: slice) -> np.ndarray:
            raise RuntimeError("bad block")

    class Short(Recorder):
        def __getitem__(self, rows: slice) -> np.ndarray:
            return super().__getitem__(rows)[:-1]

    with pytest.raises(DataError, match=r"rows 2 to 5 of the array could not be read \(bad block\).*copy them again"):
        open_source(Failing(9)).read(2, 5)
    with pytest.raises(DataError, match=r"the array ended early: rows 2 to 5 were asked for but only 2 came"):
        open_source(Short(9)).read(2, 5)


def test_a_users_own_source_is_taken_as_it_is():
    source = pickle.loads(pickle.dumps(open_source(np.arange(3.0))))
    assert open_source(source) is source


def test_dataset_makes_no_sense_for_an_array():
    with pytest.raises(DataError, match=r"dataset='y' applies to .npz, Zarr and HDF5 containers, not to the array"):
        open_source(np.zeros(3), dataset="y")
