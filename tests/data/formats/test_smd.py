"""Single-molecule datasets in JSON."""

import gzip
import json

import numpy as np

import longhmm as lh
from data.formats.molecules import TRACES, is_traces


def dataset(index):
    traces = []
    for number, each in enumerate(TRACES):
        values = {"donor": each[:, 0].tolist(), "acceptor": each[:, 1].tolist()}
        traces.append({"id": str(number), "attr": {}, "index": index(len(each)).tolist(), "values": values})
    types = {"index": "double", "values": {"donor": "double", "acceptor": "double"}}
    return {"id": "0f", "desc": "made up", "types": types, "attr": {}, "data": traces}


def test_single_molecule_datasets(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(dataset(lambda n: 0.1 * np.arange(n))))
    is_traces(lh.open_data(tmp_path / "a.json"), rate=10.0)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(dataset(np.arange)).encode()))
    is_traces(lh.open_data(tmp_path / "b.json.gz"))  # rows that are only counted have no rate
    donors = lh.open_data(tmp_path / "a.json", columns="donor")
    np.testing.assert_allclose(donors.rows(0, 5).values[:, 0], TRACES[0][:, 0])


def test_missing_values_of_single_molecule_datasets(tmp_path):
    found = dataset(np.arange)
    found["data"][0]["values"]["donor"][1] = None
    (tmp_path / "a.json").write_text(json.dumps(found))
    assert not lh.open_data(tmp_path / "a.json").rows(0, 5).observed[1, 0]
