"""Blocks and windows, against plain loops over the definition."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import longhmm as lh
from longhmm.data import layout as data_layout
from longhmm.data.formats import open_source
from longhmm.data.layout import Layout, Partition, gather, locate
from longhmm.data.rows import Rows
from longhmm.data.sequences import open_data
from longhmm.data.source import Source
from longhmm.errors import DataError

ragged = st.lists(st.integers(1, 30), min_size=1, max_size=8)
core_lengths = st.integers(1, 12)
buffers = st.integers(0, 15)


def _offsets(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _windows_by_definition(lengths: list[int], core_length: int, buffer: int) -> list[tuple[int, int, int, int, bool]]:
    windows = []
    first = 0
    for length in lengths:
        end = first + length
        for a in range(first, end, core_length):
            b = min(a + core_length, end)
            start, stop = max(first, a - buffer), min(end, b + buffer)
            windows.append((a, a - start, b - a, stop - b, start == first))
        first = end
    return windows


@given(ragged, core_lengths, buffers)
def test_locate_keeps_to_the_definition(lengths, core_length, buffer):
    partition = Partition(_offsets(lengths), core_length)
    index = partition.locate(np.arange(partition.n_blocks), buffer)
    found = list(zip(*(field.tolist() for field in jax.tree.leaves(index)), strict=True))
    assert found == _windows_by_definition(lengths, core_length, buffer)
    assert index.begin.dtype == np.int64 and index.opens.dtype == bool
    assert (index.left + index.core + index.right).max() <= partition.width(buffer)


@given(ragged, core_lengths, buffers)
def test_every_time_is_in_exactly_one_core_and_no_window_crosses_an_end(lengths, core_length, buffer):
    offsets = _offsets(lengths)
    partition = Partition(offsets, core_length)
    index = partition.locate(np.arange(partition.n_blocks), buffer)
    owned = np.zeros(offsets[-1], int)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    for begin, left, core, right, opens in zip(*jax.tree.leaves(index), strict=True):
        owned[begin : begin + core] += 1
        start = begin - left
        assert left >= 0 and core > 0 and right >= 0
        assert len(set(sequence[start : begin + core + right])) == 1
        assert opens == (start == 0 or sequence[start - 1] != sequence[start])
    np.testing.assert_array_equal(owned, 1)


@functools.partial(jax.jit, static_argnames="core_length")
def _locate_in_jax(block_offsets, offsets, core_length, partition, buffer):
    return locate(jnp, block_offsets, offsets, core_length, partition, buffer)


# Two fixed numbers of sequences, and fixed numbers of partition, so that few shapes are compiled.
@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([1, 5]).flatmap(lambda n: st.lists(st.integers(1, 10**6), min_size=n, max_size=n)),
    st.sampled_from([1, 7]),
    st.integers(0, 10**4),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6),
)
def test_numpy_and_jitted_jax_agree(lengths, core_length, buffer, where):
    partition = Partition(_offsets(lengths), core_length)
    chosen = (np.array(where) * partition.n_blocks).astype(np.int64)
    chosen[-1] = partition.n_blocks - 1
    expected = partition.locate(chosen, buffer)
    short = [jnp.asarray(x, jnp.int32) for x in (partition.block_offsets, partition.offsets)]
    found = _locate_in_jax(*short, core_length, jnp.asarray(chosen, jnp.int32), buffer)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_int32_suffices_up_to_its_limit():
    length = 2**31 - 1
    partition = Partition(np.array([0, length]), 1000)
    last = np.array([0, partition.n_blocks - 1])
    expected = partition.locate(last, 5000)
    short = [jnp.asarray(x, jnp.int32) for x in (partition.block_offsets, partition.offsets)]
    found = _locate_in_jax(*short, 1000, jnp.asarray(last, jnp.int32), 5000)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert expected.begin[1] + expected.core[1] + expected.right[1] == length


def test_positions_beyond_32_bits():
    partition = Partition(np.array([0, 3, 10**13]), 10)
    index = partition.locate([partition.n_blocks - 1], 4)
    assert index.begin[0] + index.core[0] + index.right[0] == 10**13


class NotInMemory(Source):
    """A source whose values are read window by window, as from a file; it remembers the reads."""

    def __init__(self, values: np.ndarray) -> None:
        self._source = open_source(values)
        self.name = "the slow source"
        self.length, self.dim, self.dtype = self._source.length, self._source.dim, self._source.dtype
        self.reads: list[tuple[int, int]] = []

    def fetch(self, start: int, stop: int) -> np.ndarray:
        self.reads.append((start, stop))
        return self._source.read(start, stop)


@settings(deadline=None)
@given(ragged, core_lengths, buffers, st.sampled_from(["f4", "f8", "i2"]), st.booleans(), st.integers(0, 3))
def test_gather_equals_direct_slices(lengths, core_length, buffer, dtype, with_states, extra):
    rng = np.random.default_rng(sum(lengths))
    total = sum(lengths)
    values = rng.integers(1, 100, (total, 2)).astype(dtype)
    mask = rng.random((total, 2)) < 0.2
    states = rng.integers(-1, 4, total) if with_states else None
    hidden = mask.copy()
    if values.dtype.kind == "f":
        values[0, 1] = np.nan
        hidden[0, 1] = True
    partition = Partition(_offsets(lengths), core_length)
    chosen = rng.integers(0, partition.n_blocks, 5)
    index, width = partition.locate(chosen, buffer), partition.width(buffer) + extra
    slow = NotInMemory(values)
    for given_data in (values, slow):
        data = open_data(given_data, mask=mask, states=states, lengths=lengths)
        batch, layout = gather(data, index, width)
        assert batch.values.shape == batch.observed.shape == (5, width, 2) and batch.values.dtype == dtype
        assert all(each.dtype == np.int32 for each in jax.tree.leaves(layout))
        for n in range(5):
            a, size = index.begin[n] - index.left[n], index.left[n] + index.core[n] + index.right[n]
            np.testing.assert_array_equal(batch.values[n, :size], values[a : a + size])
            np.testing.assert_array_equal(batch.observed[n, :size], ~hidden[a : a + size])
            assert not batch.observed[n, size:].any() and not batch.values[n, size:].any()
            if states is not None:
                np.testing.assert_array_equal(batch.states[n, :size], states[a : a + size])
                assert (batch.states[n, size:] == -1).all()
        assert (batch.states is None) == (states is None)
        for name in ("left", "core", "right", "opens"):
            np.testing.assert_array_equal(getattr(layout, name), getattr(index, name))
        np.testing.assert_array_equal(layout.begin, np.arange(5) * width + index.left)
    begin, stop = index.begin - index.left, index.begin + index.core + index.right
    wanted = zip(begin.tolist(), stop.tolist(), strict=True)
    assert sorted(slow.reads) == sorted(wanted)
    assert slow.reads == sorted(slow.reads, key=lambda rows: rows[0])  # in the order of the file


@pytest.mark.parametrize("states", [None, np.zeros(20, int)])
def test_a_batch_is_a_pytree(states):
    partition = Partition(np.array([0, 20]), 4)
    data = open_data(np.arange(20.0), states=states)
    batch, layout = gather(data, partition.locate([0, 4], 3), partition.width(3))
    doubled, twice = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + leaf, tree))((batch, layout))
    assert isinstance(doubled, Rows) and (doubled.states is None) == (states is None)
    assert isinstance(twice, Layout)
    np.testing.assert_array_equal(doubled.values, 2 * batch.values)


def test_gather_takes_an_index_made_by_jax():
    partition = Partition(np.array([0, 20]), 4)
    host = partition.locate(np.array([1, 4]), 2)
    batch, _ = gather(open_data(np.arange(20.0)), jax.tree.map(jnp.asarray, host), 8)
    np.testing.assert_array_equal(batch.values[0, :, 0], np.arange(2.0, 10.0))
    np.testing.assert_array_equal(batch.values[1, :, 0], [14, 15, 16, 17, 18, 19, 0, 0])


def test_gather_checks_what_it_reads(tmp_path):
    values = np.zeros(40)
    values[33] = np.inf
    np.save(tmp_path / "y.npy", values)
    data, partition = open_data(tmp_path / "y.npy"), Partition(np.array([0, 40]), 5)
    gather(data, partition.locate([0, 1], 2), 9)
    with pytest.raises(DataError, match=r"y.npy has an infinite value at position 33 \(row 33 of .*replace it by NaN"):
        gather(data, partition.locate([0, 6], 2), 9)


def test_what_cannot_be_cut():
    offsets = np.array([0, 10])
    for wrong in (0, -3, 2.5, None):
        with pytest.raises(DataError, match=f"core_length must be a whole number of at least 1, got {wrong}"):
            Partition(offsets, wrong)  # type: ignore[arg-type]
    partition = Partition(offsets, 4)
    with pytest.raises(DataError, match="width must be at least the longest window, 6 times, but is 5; raise it"):
        gather(open_data(np.zeros(10)), partition.locate([0, 1], 1), 5)


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
    partition = Partition(np.array([0, 5000]), 21)
    chosen = np.random.default_rng(1).choice(partition.n_blocks, 15, replace=False)
    expected = gather(lh.open_data(values), partition.locate(chosen, 30), 81)
    data = opened(kind, values, tmp_path)
    assert not data.in_memory and data.mapped == (kind == "map")
    reads = []
    monkeypatch.setattr(data.source, "read", lambda *rows, read=data.source.read: reads.append(rows) or read(*rows))
    found = gather(data, partition.locate(chosen, 30), 81)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert len(reads) == (0 if kind == "map" else 15)


def test_an_infinite_value_in_a_map_is_named_with_its_place(values, tmp_path):
    values[4000, 1] = np.inf
    data = opened("map", values, tmp_path)
    partition = Partition(np.array([0, 5000]), 21)
    with pytest.raises(DataError, match="infinite value at position 4000 "):
        gather(data, partition.locate(np.array([4000 // 21]), 5), 31)
    gather(data, partition.locate(np.array([10]), 5), 31)


def test_chosen_columns_of_a_map_and_large_batches(values, tmp_path, monkeypatch):
    np.save(tmp_path / "y.npy", values)
    data = lh.open_data(tmp_path / "y.npy", columns=[1])
    partition = Partition(np.array([0, 5000]), 21)
    index = partition.locate(np.arange(50), 5)
    at_once = gather(data, index, 31)[0].values
    monkeypatch.setattr(data_layout, "_MOST_AT_ONCE", 10)
    np.testing.assert_array_equal(gather(data, index, 31)[0].values, at_once)
    np.testing.assert_array_equal(at_once[3, :5, 0], values[3 * 21 - 5 : 3 * 21, 1])
