"""Traces of single molecules: text of ebFRET and vbFRET, single-molecule datasets, the HDF5 of tMAVEN."""

import numpy as np
import pytest

import longhmm as lh
from data.formats.molecules import LENGTHS, TRACES, is_traces
from longhmm.data.formats import open_source
from longhmm.errors import DataError


def side_by_side(pad):
    table = np.full((max(LENGTHS), 2 * len(TRACES)), pad)
    for index, trace in enumerate(TRACES):
        table[: len(trace), 2 * index : 2 * index + 2] = trace
    return table


def test_molecules_one_below_the_other(tmp_path):
    rows = [np.column_stack([np.full(len(each), 3 + n), each]) for n, each in enumerate(TRACES)]
    np.savetxt(tmp_path / "stacked.dat", np.concatenate(rows), fmt="%g")
    is_traces(lh.open_data(tmp_path / "stacked.dat"))


@pytest.mark.parametrize("pad", [0.0, np.nan])
@pytest.mark.parametrize("labelled", [False, True])
def test_molecules_side_by_side(tmp_path, pad, labelled):
    table = side_by_side(pad)
    if labelled:
        table = np.concatenate([np.repeat([[11.0, 12.0, 15.0]], 2, axis=1), table])
    np.savetxt(tmp_path / "many.dat", table)
    is_traces(lh.open_data(tmp_path / "many.dat"))


def test_molecules_after_a_column_of_times(tmp_path):
    table = np.column_stack([0.05 * np.arange(max(LENGTHS)), side_by_side(0.0)])
    np.savetxt(tmp_path / "many.dat", table, delimiter=",")
    is_traces(lh.open_data(tmp_path / "many.dat"), rate=20.0)
    for index, trace in enumerate(TRACES):
        np.savetxt(tmp_path / f"{index}.dat", np.column_stack([0.2 * np.arange(len(trace)), trace]))
    files = [str(tmp_path / f"{index}.dat") for index in range(len(TRACES))]
    is_traces(lh.open_data(files), rate=5.0)
    one = lh.open_data(files, columns="acceptor")
    np.testing.assert_allclose(one.rows(0, 5).values[:, 0], TRACES[0][:, 1])


def test_several_files_of_several_molecules(tmp_path):
    np.savetxt(tmp_path / "a.dat", side_by_side(0.0))
    is_traces(lh.open_data([str(tmp_path / "a.dat")] * 2), TRACES * 2)


def test_archives_know_the_lengths_of_traces(tmp_path):
    np.savez(tmp_path / "a.npz", efficiency=np.linspace(0, 1, 15), lengths=LENGTHS, dt=0.2)
    data = lh.open_data(tmp_path / "a.npz", dataset="efficiency")
    assert np.diff(data.offsets).tolist() == list(LENGTHS) and data.rate == pytest.approx(5.0)
    assert lh.open_data(tmp_path / "a.npz").n_sequences == len(LENGTHS)  # what cuts the only array is not asked about
    np.savez(tmp_path / "b.npz", efficiency=np.linspace(0, 1, 14), lengths=LENGTHS)
    assert lh.open_data(tmp_path / "b.npz", dataset="efficiency").n_sequences == 1  # lengths of something else
    with pytest.raises(
        DataError, match=r"holds several arrays; choose one with dataset=, from \['efficiency', 'lengths'"
    ):
        lh.open_data(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.dat", "1 2 x\n", "is not a table of numbers"),
        ("a.dat", "1\n2\n", "has one column, but needs a donor and an acceptor"),
        ("a.dat", "0.5 2 3\n0.5 3 4\n", "must have numbers of molecules or rising times"),
        ("a.dat", "1 2 3 4 5\n1 3 4 5 6\n", "needs pairs of donor and acceptor after rising times"),
        ("a.dat", "0 0\n0 0\n", "holds no trace with any values"),
        ("a.json", "[1, 2", "is not readable JSON"),
        ("a.json", '{"data": [{"values": []}]}', "is not a single-molecule dataset"),
        ("a.json", '{"data": []}', "holds no traces"),
        ("a.json", '{"data": [{"values": {"donor": [1, 2], "acceptor": [1]}}]}', "as many numbers"),
        ("a.csv.gz", "1,2", "must be a single-molecule dataset"),
    ],
)
def test_refusals(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        open_source(tmp_path / name)
