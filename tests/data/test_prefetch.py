"""Reading ahead: in order, not too far, errors in their turn; windows of maps and far stores as of memory."""

import threading

import jax
import numpy as np
import pytest
import zarr

import longhmm as lh
from longhmm.data import windows as data_windows
from longhmm.data.prefetch import ahead
from longhmm.data.windows import Cells, gather
from longhmm.errors import DataError


def test_things_come_in_order_and_are_made_by_another_thread():
    threads = set()

    def make(number):
        threads.add(threading.current_thread().name)
        return number**2

    assert list(ahead(make, 7)) == [number**2 for number in range(7)]
    assert list(ahead(make, 0)) == []
    assert threads and threading.current_thread().name not in threads


def test_no_more_than_the_depth_is_made_ahead():
    made = []
    things = ahead(lambda number: made.append(number) or number, 100, depth=2)
    for expected in range(10):
        assert next(things) == expected
        assert len(made) <= expected + 4
    things.close()
    assert len(made) <= 13
    assert not any(thread.name.startswith("longhmm-prefetch") for thread in threading.enumerate())


def test_an_error_is_raised_in_its_turn():
    def make(number):
        if number == 2:
            raise DataError("row 2 is gone")
        return number

    things = ahead(make, 5)
    assert [next(things), next(things)] == [0, 1]
    with pytest.raises(DataError, match="row 2"):
        next(things)


@pytest.fixture
def values():
    values = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
    values[100:120, 0] = np.nan
    return values


def opened(kind, values, folder):
    if kind == "map":
        np.save(folder / "y.npy", values)
        return lh.open_data(folder / "y.npy")
    place = f"memory://{folder.name}/y.zarr" if kind == "far" else str(folder / "y.zarr")
    stored = zarr.create_array(place, shape=values.shape, chunks=(300, 2), dtype=values.dtype)
    stored[:] = values
    return lh.open_data(place)


@pytest.mark.parametrize("kind", ["map", "zarr", "far"])
def test_windows_are_the_same_wherever_the_data_lie(kind, values, tmp_path, monkeypatch):
    cells = Cells(np.array([0, 5000]), 21)
    chosen = np.random.default_rng(1).choice(cells.n_cells, 15, replace=False)
    expected = gather(lh.open_data(values), cells.locate(chosen, 30), 81)
    data = opened(kind, values, tmp_path)
    assert not data.in_memory and data.mapped == (kind == "map")
    reads = []
    monkeypatch.setattr(data.source, "read", lambda *rows, read=data.source.read: reads.append(rows) or read(*rows))
    found = gather(data, cells.locate(chosen, 30), 81)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert len(reads) == (0 if kind == "map" else 15)


def test_an_infinite_value_in_a_map_is_named_with_its_place(values, tmp_path):
    values[4000, 1] = np.inf
    data = opened("map", values, tmp_path)
    cells = Cells(np.array([0, 5000]), 21)
    with pytest.raises(DataError, match="infinite value at position 4000 "):
        gather(data, cells.locate(np.array([4000 // 21]), 5), 31)
    gather(data, cells.locate(np.array([10]), 5), 31)


def test_chosen_columns_of_a_map_and_large_batches(values, tmp_path, monkeypatch):
    np.save(tmp_path / "y.npy", values)
    data = lh.open_data(tmp_path / "y.npy", columns=[1])
    cells = Cells(np.array([0, 5000]), 21)
    index = cells.locate(np.arange(50), 5)
    at_once = gather(data, index, 31)[0].values
    monkeypatch.setattr(data_windows, "_MOST_AT_ONCE", 10)
    np.testing.assert_array_equal(gather(data, index, 31)[0].values, at_once)
    np.testing.assert_array_equal(at_once[3, :5, 0], values[3 * 21 - 5 : 3 * 21, 1])
