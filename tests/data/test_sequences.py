"""Many sequences as one index space: opening, masks, known states, and every way in which they may not fit."""

from __future__ import annotations

import functools
import time
import tracemalloc

import dask.array
import h5py
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from longhmm.data.layout import Partition, gather
from longhmm.data.sequences import Sequences, open_data
from longhmm.errors import DataError

NAN = np.nan


def test_one_array():
    data = open_data(np.array([1.0, NAN, 3.0]))
    assert (data.length, data.dim, data.n_sequences, data.dtype, data.name) == (3, 1, 1, np.float64, "the array")
    assert data.in_memory and not data.has_mask and not data.has_states and len(data) == 3
    assert data.offsets.dtype == np.int64 and data.offsets.tolist() == [0, 3]
    block = data.rows(1, 3)
    np.testing.assert_array_equal(block.values, [[NAN], [3.0]])
    np.testing.assert_array_equal(block.observed, [[False], [True]])
    assert block.states is None
    assert open_data(data) is data


@pytest.mark.parametrize("numbers", [[1.5, 2.5], (1.5, 2.5), [np.float32(1.5), 2.5], [jnp.float32(1.5), 2.5]])
def test_a_list_of_numbers_is_one_sequence(numbers):
    data = open_data(numbers)
    assert data.n_sequences == 1
    np.testing.assert_array_equal(data.rows(0, 2).values, [[1.5], [2.5]])


def test_a_list_of_arrays_is_many_sequences(tmp_path):
    pieces = [np.array([1.0, 2.0]), np.array([3.0]), np.array([4.0, 5.0, 6.0])]
    paths = []
    for i, piece in enumerate(pieces):
        paths.append(tmp_path / f"{i}.npy")
        np.save(paths[-1], piece)
    mixed = [pieces[0].tolist(), jnp.asarray(pieces[1]), pd.Series(pieces[2])]
    for given_list, in_memory in [(pieces, True), (tuple(pieces), True), (mixed, True), (paths, False)]:
        data = open_data(given_list)
        assert data.in_memory == in_memory and data.n_sequences == 3 and data.offsets.tolist() == [0, 2, 3, 6]
        for start in range(7):
            for stop in range(start, 7):
                np.testing.assert_array_equal(data.rows(start, stop).values[:, 0], np.arange(1.0, 7)[start:stop])
    assert open_data([pieces[0], paths[1]]).rows(1, 3).values.tolist() == [[2.0], [3.0]]


def test_lengths_cut_one_array():
    data = open_data(np.arange(6), lengths=[2, 1, 3])
    assert data.offsets.tolist() == [0, 2, 3, 6] and data.dtype == np.int64


def test_places_have_names(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(5))
    np.save(tmp_path / "b.npy", np.zeros(5))
    many = open_data([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert many.describe(7) == f"row 2 of sequence 1 ({tmp_path / 'b.npy'})"
    assert many.name == f"{tmp_path / 'a.npy'} and 1 more"
    assert open_data(tmp_path / "a.npy").describe(4) == f"row 4 of {tmp_path / 'a.npy'}"
    data = open_data([np.zeros(5), np.zeros(5)])
    assert data.describe(5) == "row 0 of sequence 1 (the list of 2 sequences)"
    assert [data.sequence_of(i) for i in (0, 4, 5, 9)] == [0, 0, 1, 1]
    np.testing.assert_array_equal(data.sequence_of(np.array([9, 0])), [1, 0])
    for position in (-1, 10):
        with pytest.raises(DataError, match=f"position {position} is outside the list.*positions 0 to 9"):
            data.sequence_of(position)


def test_repr_is_one_helpful_line():
    data = open_data(np.zeros((1500, 2), np.float32), lengths=[1000, 500], mask=np.zeros(1500, bool))
    expected = "Sequences(the array: 2 sequences, 1,500 observations, dim 2, float32, in memory, with mask)"
    assert repr(data) == expected


# Masks and known states


@pytest.mark.parametrize("kind", [np.int32, np.float64])
def test_masks_of_rows_and_of_features(kind, tmp_path):
    values = np.arange(8).reshape(4, 2).astype(kind)
    rows = np.array([False, True, False, False])
    features = np.array([[0, 1], [0, 0], [1, 1], [0, 0]], bool)
    np.save(tmp_path / "y.npy", values)
    np.save(tmp_path / "mask.npy", features)
    for data in (values, tmp_path / "y.npy"):
        opened = open_data(data, mask=rows)
        assert opened.has_mask and opened.dtype == kind
        block = opened.rows(1, 4)
        np.testing.assert_array_equal(block.observed, [[False, False], [True, True], [True, True]])
        np.testing.assert_array_equal(block.values, values[1:4])
        for mask in (features, features.astype(np.int8), tmp_path / "mask.npy", jnp.asarray(features), [features]):
            np.testing.assert_array_equal(open_data(data, mask=mask).rows(0, 4).observed, ~features)
    np.testing.assert_array_equal(open_data(values[:, 0], mask=rows.tolist()).rows(0, 4).observed[:, 0], ~rows)


def test_masked_arrays():
    values = np.arange(6).reshape(3, 2)
    hidden = np.array([[0, 1], [0, 0], [1, 0]], bool)
    masked = np.ma.array(values, mask=hidden)
    block = open_data(masked).rows(0, 3)
    assert block.values.dtype == np.int64
    np.testing.assert_array_equal(block.observed, ~hidden)
    both = open_data(masked, mask=[False, True, False]).rows(0, 3)
    np.testing.assert_array_equal(both.observed, [[True, False], [False, False], [False, True]])
    some = open_data(masked, columns=[1]).rows(0, 3)
    np.testing.assert_array_equal(some.observed, ~hidden[:, [1]])
    many = open_data([values, masked, np.ma.array(values)], mask=[None, None, [True, False, False]])
    expected = np.concatenate([np.ones((3, 2), bool), ~hidden, [[False, False], [True, True], [True, True]]])
    np.testing.assert_array_equal(many.rows(0, 9).observed, expected)


def test_infinities_are_allowed_only_under_a_mask():
    masked = np.ma.masked_invalid(np.array([1.0, np.inf, NAN]))
    block = open_data(masked).rows(0, 3)
    np.testing.assert_array_equal(block.values[:, 0], [1.0, NAN, NAN])
    np.testing.assert_array_equal(block.observed[:, 0], [True, False, False])


def test_known_states(tmp_path):
    np.save(tmp_path / "x.npy", np.array([-1, 0, 2], np.int8))
    for states in ([-1, 0, 2], np.array([-1, 0, 2]), tmp_path / "x.npy", [[-1, 0, 2]]):
        data = open_data(np.zeros(3), states=states)
        block = data.rows(1, 3)
        assert data.has_states and block.states is not None and block.states.dtype == np.int32
        assert block.states.tolist() == [0, 2]
    many = open_data([np.zeros(2), np.zeros(3)], states=[None, [3, -1, 4]])
    assert many.rows(0, 5).states.tolist() == [-1, -1, 3, -1, 4]  # type: ignore[union-attr]


# What does not fit


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, r"data lists no sequences \(an empty list\); pass at least one sequence"),
        ([np.zeros(2), np.zeros(0)], {}, r"sequence 1 of the list is empty \(shape \(0,\)\); pass at least one"),
        (
            [np.zeros((2, 2)), np.zeros((2, 3))],
            {},
            r"sequence 1 \(.*\) has 3 features but sequence 0 \(.*\) has 2; give every sequence the same",
        ),
        ([np.zeros(2), "nowhere.npy"], {}, "data file 'nowhere.npy' does not exist"),
        ([np.zeros(2), None], {}, "sequence 1 of the list must be an array.* is of type NoneType"),
        ([np.zeros(2), np.array(["a"])], {}, "sequence 1 of the list must hold real numbers"),
        (np.zeros(3), {"lengths": [1, 1]}, "lengths must sum to the 3 rows of the array but sum to 2"),
        (np.zeros(3), {"lengths": [3, 0]}, "lengths must be a list of positive whole numbers.*smallest 0; drop empty"),
        (np.zeros(3), {"lengths": [1.5, 1.5]}, "lengths must be a list of positive whole numbers, but is float64"),
        (np.zeros(3), {"lengths": []}, "lengths must be a list of positive whole numbers"),
        ([np.zeros(3)], {"lengths": [3]}, "data is a list of sequences; leave lengths out"),
        (np.zeros(3), {"mask": np.zeros(2, bool)}, r"mask must have shape \(3,\) to match the array .*\(2, 1\); give"),
        (np.zeros((3, 2)), {"mask": np.zeros((3, 3), bool)}, r"mask must have shape \(3,\) or \(3, 2\) to match"),
        (np.zeros(3), {"mask": np.zeros(3)}, r"mask must hold True \(missing\) or False, but mask has dtype float64"),
        (np.zeros(3), {"mask": [0, 1, 2]}, r"mask must hold True .* has 2 at position 2 \(row 2 of the array\); pass"),
        ([np.zeros(3)], {"mask": [[True], [True]]}, "mask lists 2 sequences but the list of 1 sequences has 1; give"),
        (
            [np.zeros(3), np.zeros(1)],
            {"mask": [np.zeros(3, bool), np.zeros(2, bool)]},
            "mask of sequence 1 must have the 1 rows of its data but has 2; give one row for each observation",
        ),
        (np.zeros(3), {"states": [0, 1]}, r"states must have shape \(3,\) to match the array but has shape \(2, 1\)"),
        (np.zeros(3), {"states": np.zeros((3, 2), int)}, r"states must have shape \(3,\)"),
        (np.zeros(3), {"states": [0, 1, -2]}, r"states must be -1 \(unk.* is -2 at position 2 \(row 2 of .*with -1"),
        (np.zeros(3), {"states": [0, 1, 2**31]}, "states must be .* is 2147483648 at position 2"),
        (np.zeros(3), {"states": [0, 1, NAN]}, "states must hold integers, with -1 for unknown, but states has dtype"),
        (open_data([1.0]), {"lengths": [1]}, "the array is open already; give mask, states, covariates, lengths"),
    ],
)
def test_what_does_not_fit(data, options, message):
    with pytest.raises(DataError, match=message):
        open_data(data, **options)


def test_infinite_values_in_memory_are_found_on_opening():
    values = np.zeros((3_000_000, 1), np.float32)
    values[2_500_000] = -np.inf
    place = r"at position 2500000 \(row 500000 of sequence 1 \(the array\)\), feature 0"
    with pytest.raises(DataError, match=f"the array has an infinite value {place}; replace it by NaN to mark it as m"):
        open_data(values, lengths=[2_000_000, 1_000_000])


def test_looking_for_infinities_needs_little_memory():
    values = np.zeros((8_000_000, 2))
    tracemalloc.start()
    open_data(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes / 20


def test_files_are_checked_as_they_are_read(tmp_path):
    values = np.zeros((10, 2))
    values[7, 1] = np.inf
    for i in range(2):
        np.save(tmp_path / f"{i}.npy", values)
    data = open_data([tmp_path / "0.npy", tmp_path / "1.npy"], states=np.r_[np.zeros(18, int), -5, 0])
    data.rows(8, 17)
    place = rf"position 17 \(row 7 of sequence 1 \({tmp_path / '1.npy'}\)\), feature 1; replace it by NaN"
    with pytest.raises(DataError, match=place):
        data.rows(10, 20)
    with pytest.raises(DataError, match=r"is -5 at position 18 \(row 8 of sequence 1"):
        data.rows(18, 20)
    with pytest.raises(DataError, match="is not in memory; use rows"):
        data.take(np.array([0]))


def test_many_short_sequences_are_fast():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, 200_000)
    values = rng.normal(size=lengths.sum())
    pieces = np.split(values, np.cumsum(lengths)[:-1])
    began = time.perf_counter()
    data = open_data(pieces, states=[np.zeros(n, int) for n in lengths])
    assert time.perf_counter() - began < 5.0
    assert data.n_sequences == 200_000
    np.testing.assert_array_equal(np.diff(data.offsets), lengths)
    np.testing.assert_array_equal(data.rows(0, data.length).values[:, 0], values)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_every_position_belongs_to_its_sequence(lengths):
    data: Sequences = open_data(np.arange(sum(lengths)), lengths=lengths)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    np.testing.assert_array_equal(data.sequence_of(np.arange(data.length)), owners)
    assert [data.sequence_of(i) for i in range(data.length)] == owners.tolist()


# Every kind of source


def written(kind, values, folder):
    """The same values as each kind of source holds them."""
    path = folder / f"y{kind}"
    match kind:
        case "memory":
            return values
        case "list":
            return [values[:13], values[13:]]
        case "dask":
            return dask.array.from_array(values, chunks=(7, 2))
        case ".npy":
            np.save(path, values)
        case ".npz":
            np.savez(path, y=values)
        case ".zarr":
            zarr.create_array(str(path), data=values, chunks=(7, 2))
        case ".h5":
            with h5py.File(path, "w") as file:
                file["y"] = values
        case ".parquet":
            pd.DataFrame(values, columns=["a", "b"]).to_parquet(path, row_group_size=8)
        case ".csv":
            pd.DataFrame(values, columns=["a", "b"]).to_csv(path, index=False)
    return path


def rows_by_definition(values, mask, states, covariates, starts, start, stop, lags):
    before = np.full((stop - start, lags, values.shape[1]), NAN)
    hidden = mask | np.isnan(values)
    for t in range(start, stop):
        first = max(each for each in starts if each <= t)
        for lag in range(1, lags + 1):
            if t - lag >= first:
                before[t - start, lag - 1] = np.where(hidden[t - lag], NAN, values[t - lag])
    return values[start:stop], ~hidden[start:stop], states[start:stop], before, covariates[start:stop]


@pytest.mark.parametrize("kind", ["memory", "list", "dask", ".npy", ".npz", ".zarr", ".h5", ".parquet", ".csv"])
@pytest.mark.parametrize("beside", ["memory", ".npy"])
def test_masks_states_covariates_and_lags_come_from_every_source(kind, beside, tmp_path):
    rng = np.random.default_rng(3)
    values, mask = rng.normal(size=(30, 2)), rng.random((30, 2)) < 0.2
    values[11, 0] = NAN
    states, covariates = rng.integers(-1, 3, 30), rng.normal(size=(30, 2))
    along = {"mask": mask, "states": states, "covariates": covariates}
    for name, each in along.items():
        if beside == ".npy":
            np.save(tmp_path / f"{name}.npy", each)
            along[name] = tmp_path / f"{name}.npy"
    lengths = None if kind == "list" else [13, 17]
    data = open_data(written(kind, values, tmp_path), lengths=lengths, **along)
    assert data.n_covariates == 2 and data.has_mask and data.has_states
    definition = functools.partial(rows_by_definition, values, mask, states, covariates, [0, 13])
    for start, stop in [(0, 30), (0, 1), (12, 14), (15, 20), (29, 30)]:
        found = data.rows(start, stop, lags=3)
        for one, expected in zip(found, definition(start, stop, 3), strict=True):
            np.testing.assert_array_equal(one, expected)
        assert data.rows(start, stop).lags is None
    spans = [(4, 9), (14, 20)]
    for rows, span in zip(data.rows_of(spans, 2), spans, strict=True):
        np.testing.assert_array_equal(rows.lags, definition(*span, 2)[3])
    last = data.part(np.array([13, 30]))
    for one, expected in zip(last.rows(0, 17, 1), definition(13, 30, 1), strict=True):
        np.testing.assert_array_equal(one, expected)
    blocks = Partition(data.offsets, 4)
    layout = blocks.locate(np.array([2, 0, 5]), 3)
    batch, _ = gather(data, layout, blocks.width(3), lags=2)
    for n in range(3):
        a = layout.begin[n] - layout.left[n]
        size = layout.left[n] + layout.core[n] + layout.right[n]
        for one, expected in zip(batch, definition(a, a + size, 2), strict=True):
            np.testing.assert_array_equal(one[n, :size], expected)
        assert not batch.observed[n, size:].any() and (batch.states[n, size:] == -1).all()


def test_a_dask_array_alone_gives_lags_too():
    values = np.arange(20.0).reshape(10, 2)
    data = open_data(dask.array.from_array(values, chunks=(4, 2)), lengths=[6, 4])
    for rows, start in zip(data.rows_of([(2, 4), (6, 8)], 1), (2, 6), strict=True):
        np.testing.assert_array_equal(rows.lags[:, 0], [values[1], values[2]] if start == 2 else [[NAN] * 2, values[6]])


def test_a_covariate_that_is_missing_is_named_with_its_row(tmp_path):
    np.save(tmp_path / "y.npy", np.zeros(5))
    wrong = np.array([[1.0, 2.0]] * 4 + [[1.0, NAN]])
    message = r"covariates must be finite, but covariate 1 is nan at position 4 \(row 4 of .*fill it in"
    with pytest.raises(DataError, match=message):
        open_data(np.zeros(5), covariates=wrong)
    data = open_data(tmp_path / "y.npy", covariates=wrong)
    data.rows(0, 4)
    with pytest.raises(DataError, match=message):
        data.rows(0, 5)


def test_one_sequence_is_cut_in_time_and_many_by_whole_sequences(tmp_path):
    values = np.arange(100.0)
    np.save(tmp_path / "y.npy", values)
    for source in (values, tmp_path / "y.npy"):
        sequences = open_data(source, states=np.arange(100), mask=values == 95)
        train, test, continues = sequences.split(0.1)
        assert continues and train.length == 90
        block = test.rows(0, 10)
        assert block.values[:, 0].tolist() == values[90:].tolist()
        assert block.states.tolist() == list(range(90, 100))
        assert block.observed[:, 0].tolist() == [True] * 5 + [False] + [True] * 4
    train, test, continues = open_data([values[:10], values[10:50], values[50:70], values[70:]]).split(0.3)
    assert not continues
    assert np.diff(train.offsets).tolist() == [10, 40, 20]
    assert np.diff(test.offsets).tolist() == [30]
    assert test.rows(0, 1).values[0, 0] == 70.0
    with pytest.raises(DataError, match="held_out"):
        train.split(1.5)


def test_stretches_are_gathered_with_all_that_runs_alongside(tmp_path):
    """Cut where sequences end, in memory or from files."""
    np.save(tmp_path / "y.npy", np.arange(12.0))
    for source in (np.arange(12.0), tmp_path / "y.npy"):
        data = open_data(source, lengths=[5, 7], states=np.arange(12), covariates=-np.arange(12.0))
        found = data.gathered([(3, 9), (10, 12)])
        assert found.in_memory and found.offsets.tolist() == [0, 2, 6, 8]
        rows = found.rows(0, 8)
        assert rows.values[:, 0].tolist() == rows.states.tolist() == [3, 4, 5, 6, 7, 8, 10, 11]
        assert rows.covariates[:, 0].tolist() == [-3, -4, -5, -6, -7, -8, -10, -11]


def test_a_short_file_is_taken_into_memory_with_all_that_belongs_to_it(tmp_path, monkeypatch):
    values, covariates = np.arange(14.0).reshape(7, 2), np.arange(7.0)
    np.save(tmp_path / "y.npy", values)
    np.save(tmp_path / "x.npy", covariates)
    file = open_data(tmp_path / "y.npy", covariates=tmp_path / "x.npy", lengths=[3, 4])
    file = file.starting_at(5).following(np.ones((1, 2)))
    held = file.at_hand()
    assert held.in_memory and not file.in_memory and held.at_hand() is held
    assert (held.name, held.origin, held.offsets.tolist()) == (file.name, 5, [0, 3, 7])
    for one, other in zip(held.rows(0, 7, lags=1), file.rows(0, 7, lags=1), strict=True):
        np.testing.assert_array_equal(one, other)
    monkeypatch.setattr("longhmm.data.sequences.IN_MEMORY", values.nbytes)
    assert file.at_hand() is file  # what runs along counts, too
    lazy = open_data(dask.array.from_array(values))
    assert lazy.at_hand() is lazy
