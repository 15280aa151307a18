"""Events, traces and lists as a field expects them, against plain computations."""

import numpy as np
import pandas as pd
import pytest

import longhmm as lh
from longhmm.data.preprocess import Preprocessing
from longhmm.errors import DataError, ModelError
from longhmm.posterior.events import idealised, write_bed, write_dwt, write_events


def test_levels_and_samples_of_a_preprocessed_recording_are_those_of_the_file(known, posterior):
    steps = Preprocessing(decimate=5, normalise=True, centre=(100.0,), scale=(10.0,))
    path = np.asarray(known.sequences.rows(0, known.sequences.length).states)
    plain = posterior.events(known.sequences, path=path)
    found = posterior.events(known.sequences, path=path, rate=50.0, preprocessing=steps)
    np.testing.assert_array_equal(found["start"], 5 * plain["start"])
    np.testing.assert_array_equal(found["end"], 5 * plain["end"])
    np.testing.assert_allclose(found["end_s"], 5 * plain["end"] / 50.0)
    for name in ("level", "level_lower", "level_upper"):
        np.testing.assert_allclose(found[name], 100.0 + 10.0 * plain[name])


def test_the_idealised_trace_is_the_level_of_every_sample(known, table, tmp_path):
    path = np.asarray(known.sequences.rows(0, known.sequences.length).states)
    by_state = table.groupby("state")["level"].first().to_numpy()
    np.testing.assert_allclose(idealised(table), by_state[path].astype(np.float32))
    trace = idealised(table, out=tmp_path / "trace.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "trace.npy"), trace)
    np.testing.assert_array_equal(trace, idealised(table))
    with pytest.raises(DataError, match=r"the name of an \.npy file"):
        idealised(table, out=tmp_path / "trace.txt")


def test_dwt_lists_every_dwell_in_milliseconds(table, tmp_path):
    two = pd.concat([table, table.iloc[:3].assign(sequence=1)])
    write_dwt(tmp_path / "a.dwt", two, 1000.0, spread=np.array([1.5, 2.5]))
    text = (tmp_path / "a.dwt").read_bytes().decode("ascii")
    assert text.count("\r\n") == text.count("\n")
    segments = [part for part in text.replace("\r", "").split("Segment: ") if part]
    assert len(segments) == 2
    head, *lines = segments[0].strip().split("\n")
    assert head.startswith(f"1 Dwells: {len(table)} Sampling(ms): 1 Start(ms): 0 ClassCount: 2 ")
    levels_and_spreads = [float(word) for word in head.split("ClassCount: 2 ")[1].split()]
    np.testing.assert_allclose(levels_and_spreads[1::2], [1.5, 2.5])
    np.testing.assert_allclose(levels_and_spreads[::2], table.groupby("state")["level"].first(), atol=1e-6)
    found = np.array([line.split("\t") for line in lines], float)
    np.testing.assert_array_equal(found[:, 0], table["state"])
    np.testing.assert_allclose(found[:, 1], (table["end"] - table["start"]) * 1.0)
    assert f"Start(ms): {table['end'].iloc[-1]}" in segments[1]
    with pytest.raises(ModelError, match="rate must be a positive number"):
        write_dwt(tmp_path / "a.dwt", table, None)


def test_bed_counts_in_base_pairs(table, tmp_path):
    write_bed(tmp_path / "a.bed", table, names=["chr11"], bin_size=200)
    rows = [line.split("\t") for line in (tmp_path / "a.bed").read_text().splitlines()]
    assert [row[0] for row in rows] == ["chr11"] * len(table)
    np.testing.assert_array_equal([int(row[1]) for row in rows], 200 * table["start"])
    np.testing.assert_array_equal([int(row[2]) for row in rows], 200 * table["end"])
    assert [row[3] for row in rows] == [f"state{state}" for state in table["state"]]


def test_bed_numbers_sequences_without_names(table, tmp_path):
    write_bed(tmp_path / "a.bed", table)
    rows = [line.split("\t") for line in (tmp_path / "a.bed").read_text().splitlines()]
    assert {row[0] for row in rows} == {"seq0"}
    with pytest.raises(ModelError, match="bin_size must be a whole number of at least 1, got 0"):
        write_bed(tmp_path / "a.bed", table, bin_size=0)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_tables_of_events_survive_a_file(table, tmp_path, ending):
    file = tmp_path / f"events.{ending}"
    write_events(file, table)
    found = pd.read_parquet(file) if ending == "parquet" else pd.read_csv(file, sep="," if ending == "csv" else "\t")
    assert {"start", "end", "state", "level", "start_s", "end_s"} <= set(found.columns)
    np.testing.assert_allclose(found.to_numpy(float), table.to_numpy(float), rtol=1e-9)


def test_tables_of_events_need_a_known_ending(table, tmp_path):
    with pytest.raises(DataError, match=r"unknown ending '\.xls'"):
        write_events(tmp_path / "events.xls", table)
    with pytest.raises(DataError, match="cannot be written"):
        write_events(tmp_path / "nowhere" / "events.csv", table)


def test_the_rate_that_a_file_gives_is_used(posterior, tmp_path):
    values = np.tile(np.repeat([-1.0, 2.0], 20), 3)
    np.savez(tmp_path / "y.npz", y=values, rate=50.0)
    data = lh.open_data(tmp_path / "y.npz", dataset="y")
    assert data.rate == 50.0
    table = posterior.events(data)
    np.testing.assert_allclose(table["end_s"], table["end"] / 50.0)
    np.testing.assert_allclose(posterior.events(data, rate=10.0)["end_s"], table["end"] / 10.0)
    halved = Preprocessing(decimate=2)
    table = posterior.events(halved.apply(data), preprocessing=halved)
    assert table["end_s"].iloc[-1] == 120 / 50.0
    assert "end_s" not in posterior.events(values)
