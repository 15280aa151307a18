"""`longhmm decode`, `report` and `view` on a run that is known."""

import json

import numpy as np
import pandas as pd
import pytest

import longhmm as lh
from cli.calls import call


def test_decode_reapplies_preprocessing_and_speaks_of_the_file(known):
    folder, setting = known
    files = {name: folder / f"a.{ending}" for name, ending in (("idealised", "npy"), ("dwt", "dwt"), ("bed", "bed"))}
    words = [word for name, file in files.items() for word in (f"--{name}", file)]
    probabilities = folder / "p.npy"
    out = folder / "events.csv"
    printed = json.loads(
        call(
            "decode", folder / "run", "--out", out, *words, "--probabilities", probabilities, "--bin-size", 10, "--json"
        )
    )
    table = pd.read_csv(out)
    posterior = lh.load(folder / "run")
    values = np.asarray(setting.sequences.rows(0, 400).values)
    path = posterior.decode(values)  # the model's own samples, states unknown
    assert len(table) == printed["events"] == 1 + np.count_nonzero(np.diff(path))
    assert table["start"].iloc[0] == 0
    assert table["end"].iloc[-1] == 799
    np.testing.assert_array_equal(table["start"][1:], 2 * (np.flatnonzero(np.diff(path)) + 1))
    np.testing.assert_allclose(table["start_s"], table["start"] / 100.0)
    level = 10.0 + 2.0 * posterior.mean_params()["mean"]
    np.testing.assert_allclose(table["level"], level[table["state"]], rtol=1e-8)
    trace = np.load(files["idealised"])
    np.testing.assert_allclose(trace[::2], level[path], rtol=1e-6)
    assert len(trace) == 799
    assert "Sampling(ms): 10 " in files["dwt"].read_text()
    assert files["bed"].read_text().splitlines()[0].split("\t")[1:3] == ["0", str(10 * table["end"][0])]
    np.testing.assert_allclose(np.load(probabilities).sum(axis=1), 1.0, atol=1e-5)
    shares = {row["state"]: row["occupancy"] for row in printed["states"]}
    assert sum(shares.values()) == pytest.approx(1.0)


def test_decode_takes_another_recording_and_parquet(known):
    folder, _ = known
    shorter = np.load(folder / "y.npz")["y"][:301]
    np.savez(folder / "other.npz", y=shorter, rate=100.0)
    call("decode", folder / "run", folder / "other.npz", "--out", folder / "other.parquet")
    assert pd.read_parquet(folder / "other.parquet")["end"].iloc[-1] == 301


def test_report_writes_the_page_and_says_the_verdict(known):
    folder, _ = known
    printed = json.loads(call("report", folder / "run", "--out", folder / "page.html", "--json"))
    assert printed["page"] == str(folder / "page.html")
    assert (folder / "page.html").read_text().lower().startswith("<!doctype html>")
    assert [round(state["level"]) for state in printed["states"]] == [8, 14]


def test_view_serves_the_recording_that_was_given(known, monkeypatch):
    from longhmm.report import viewer

    calls = []
    monkeypatch.setattr(viewer, "serve", lambda *args, **options: calls.append((args, options)))
    folder, _ = known
    call("view", folder / "run", folder / "y.npz", "--no-browser", "--port", 1234)
    assert calls == [((folder / "run", [str(folder / "y.npz")]), {"port": 1234, "open_browser": False})]
