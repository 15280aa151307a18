"""Commands as a user calls them: one real fit, everything else on a posterior that is known."""

import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import longhmm as lh
from longhmm.backends import native
from longhmm.backends.pallas import windows as pallas
from longhmm.cli import app
from longhmm.posterior.run_directory import RunDirectory
from posterior.fakes import known_states

runner = CliRunner()


def call(*words, code=0):
    """Run a command; standard output is returned, or the sentence on standard error if it was to fail."""
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


def sentence(*words, code=1):
    """The one sentence with which a command fails."""
    text = call(*words, code=code)
    assert "Traceback" not in text
    assert text.count("\n") == 1
    return text


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.95, 0.05], [0.1, 0.9]], "rate": [2.0, 12.0]}
    _, values = lh.simulate(model, params, 1500, seed=1)
    file = tmp_path_factory.mktemp("counts") / "counts.h5"
    with h5py.File(file, "w") as stored:
        stored["y"] = values[:, 0]
        stored["y"].attrs["rate"] = 50.0
    return file


FIT = ("--states", 2, "--sampler", "gibbs", "--chains", 2, "--held-out", 0.2, "--seed", 3, "--json")


@pytest.fixture(scope="module")
def fitted(counts, tmp_path_factory):
    """A run of 30 draws, and what the command printed."""
    place = tmp_path_factory.mktemp("runs") / "run"
    return place, json.loads(call("fit", counts, "--out", place, "--draws", 30, *FIT))


def test_fit_guesses_says_and_finds(fitted, counts):
    place, printed = fitted
    request = json.loads((place / "run.json").read_text())
    assert request["recordings"] == [str(counts)]
    assert request["emission"]["name"] == "poisson"
    assert request["rate"] == printed["rate"] == 50.0
    levels = [state["level"] for state in printed["states"]]
    np.testing.assert_allclose(levels, [2.0, 12.0], rtol=0.15)  # 15 standard errors of the smaller
    assert printed["states"][0]["level_lower"] < levels[0] < printed["states"][0]["level_upper"]
    assert printed["states"][0]["dwell_s"] == pytest.approx(printed["states"][0]["dwell"] / 50.0)
    assert printed["verdict"]["kind"] == "run longer"  # of 60 draws nothing else can be said
    assert -4.0 < printed["held_out"]["per_observation"] < -1.0
    posterior = lh.load(place)
    assert (posterior.n_chains, posterior.n_draws) == (2, 30)
    assert posterior.settings["data"]["length"] == 1200  # a fifth was held out


def test_resume_is_content_and_goes_on_where_more_is_wanted(fitted, tmp_path):
    place, printed = fitted
    again = json.loads(call("resume", place, "--json"))
    assert again["draws"] == 30
    assert again["verdict"] == printed["verdict"]
    shutil.copytree(place, tmp_path / "more")
    assert json.loads(call("resume", tmp_path / "more", "--draws", 40, "--json"))["draws"] == 40
    one, other = lh.load(place), lh.load(tmp_path / "more")
    for name in one.draws:
        np.testing.assert_array_equal(one.draws[name], other.draws[name].isel(draw=slice(30)))


def test_a_run_without_checkpoint_starts_over(fitted, counts, tmp_path, monkeypatch):
    from longhmm.run import sample as module

    real = module.drawn

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "drawn", interrupted)
    result = runner.invoke(app, [str(w) for w in ("fit", counts, "--out", tmp_path / "run", "--draws", 30, *FIT)])
    assert result.exit_code == 130
    assert json.loads(result.stdout)["draws"] == 0
    assert (tmp_path / "run" / "run.json").is_file()
    assert "no posterior yet" in sentence("decode", tmp_path / "run", "--out", tmp_path / "e.csv")
    monkeypatch.setattr(module, "drawn", real)
    call("resume", tmp_path / "run", "--json")
    np.testing.assert_array_equal(lh.load(tmp_path / "run").draws["rate"], lh.load(fitted[0]).draws["rate"])


def test_a_time_limit_that_is_over_before_the_first_draw_is_a_sentence(counts, tmp_path):
    words = ("fit", counts, "--out", tmp_path / "run", "--time-limit", 0.01, *FIT)
    said = call(*words, code=1).strip().splitlines()[-1]
    assert "0.01 seconds were over while" in said and "allow more" in said
    assert (tmp_path / "run" / "run.json").is_file()


@pytest.mark.slow
def test_compare_ranks_by_held_out_data_and_keeps_the_runs(counts, tmp_path):
    words = ("--states", "1..2", "--sampler", "gibbs", "--chains", 2, "--draws", 30, "--out", tmp_path / "kept")
    found = json.loads(call("compare", counts, *words, "--json"))
    runs = [Path(each["run"]) for each in found["runs"]]
    assert [each.name for each in runs] == ["1-state", "2-states"]
    assert [lh.load(each).model.n_states for each in runs] == [1, 2]
    assert len(found["runs"][1]["states"]) == 2
    assert "exists already" in sentence("compare", counts, *words)
    assert [row["model"] for row in found["models"]] == ["2 states", "1 state"]
    assert found["models"][1]["difference"] < -10


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A run with a posterior in closed form, on a recording of which every second sample was kept and halved."""
    folder = tmp_path_factory.mktemp("known")
    setting = known_states(400)
    values = np.asarray(setting.sequences.rows(0, 400).values)[:, 0]
    stored = np.full(799, 1e6)
    stored[::2] = 2.0 * values + 10.0
    np.savez(folder / "y.npz", y=stored, rate=100.0)
    steps = {"decimate": 2, "normalise": True, "centre": [10.0], "scale": [2.0]}
    request = {"recordings": [str(folder / "y.npz")], "rate": 100.0, "unit": "pA", "model": {}, "sample": {"draws": 1}}
    run = RunDirectory.create(folder / "run", {**request, "preprocessing": steps})
    run.save(setting.posterior())
    return folder, setting


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


def test_tables_are_for_people_and_go_to_standard_output(known):
    folder, _ = known
    text = call("decode", folder / "run", "--out", folder / "people.csv")
    assert "events in 799 samples" in text
    assert str(folder / "people.csv") in text


def test_simulate_writes_what_the_library_draws(tmp_path):
    from longhmm_reproduction.models import dd

    words = ("--length", 300, "--out", tmp_path / "dd.npy", "--states", tmp_path / "x.npy", "--seed", 5, "--json")
    printed = json.loads(call("simulate", "dd", *words))
    states, values = lh.simulate(*dd(), 300, seed=5)
    np.testing.assert_array_equal(np.load(tmp_path / "dd.npy"), values)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), states)
    np.testing.assert_allclose(printed["params"]["transition"], dd()[1]["transition"])


def test_doctor_sees_devices_versions_and_extras():
    printed = json.loads(call("doctor", "--json"))
    assert printed["versions"]["jax"]
    assert any(device.startswith("cpu") or "gpu" in device for device in printed["devices"])
    assert printed["extras"]["hdf5"] is True
    assert {".npy", ".abf"} <= set(printed["formats"])
    # What the kernels say of themselves, not that they could not be found.
    assert printed["kernels"] == {"reference": "JAX, everywhere", "native": native.status(), "pallas": pallas.status()}


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


def test_bad_input_fails_with_one_sentence(known, tmp_path):
    folder, _ = known
    np.save(tmp_path / "y.npy", np.arange(10.0))
    np.save(tmp_path / "real.npy", np.arange(10.0) / 3)
    np.save(tmp_path / "wide.npy", np.zeros((2, 3000)))
    (tmp_path / "a.xyz").write_text("?")
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY nonsense")
    out = ("--states", 2, "--out", tmp_path / "new")
    for words, text in [
        (("fit", tmp_path / "missing.npy", *out), "does not exist"),
        (("fit", tmp_path / "a.xyz", *out), "unknown ending '.xyz'"),
        (("fit", tmp_path / "broken.npy", *out), "not a readable .npy file"),
        (("fit", tmp_path / "y.npy", "--states", 2, "--out", folder), "exists already"),
        (("fit", tmp_path / "y.npy", *out, "--column", "voltage"), "no column 'voltage'"),
        (("fit", tmp_path / "y.npy", *out, "--decimate", 10), "at least 11 samples for --decimate 10, has 10"),
        (("fit", tmp_path / "y.npy", *out, "--log"), "no logarithm"),
        (("fit", tmp_path / "wide.npy", *out), "has 2 rows and 3,000 columns, and rows are times: transpose it"),
        (("compare", tmp_path / "y.npy", "--states", "1..2", "--rate", 0), "--rate must be a positive number"),
        (("fit", tmp_path / "y.npy", *out, "--rate", -1), "--rate must be a positive number"),
        (("fit", tmp_path / "y.npy", *out, "--time-limit", 0), "--time-limit must be a positive number"),
        (("fit", tmp_path / "y.npy", *out, "--prior", "mean:3"), "--prior must look like"),
        (("fit", tmp_path / "y.npy", *out, "--prior", "colour=Normal(0, 1)"), "must name a parameter"),
        (("fit", tmp_path / "y.npy", *out, "--prior", "mean=exit()"), "--prior must look like"),
        (("fit", tmp_path / "y.npy", *out, "--stay", 0), "--stay must be a positive number"),
        (("fit", tmp_path / "y.npy", "--states", 11, "--out", tmp_path / "new"), "must not exceed the 10 samples"),
        (("fit", tmp_path / "real.npy", *out, "--emission", "poisson"), "a Poisson emission needs"),
        (("resume", tmp_path), "is not a run"),
        (("resume", tmp_path / "y.npy"), "is not a run"),
        (("decode", tmp_path / "nowhere"), "does not exist"),
        (("decode", folder / "run", "--out", tmp_path / "no" / "e.csv"), "the folder of"),
        (("decode", folder / "run", "--out", tmp_path / "e.xls"), "unknown ending '.xls'"),
        (("compare", tmp_path / "y.npy", "--states", "5..1"), "--states must be a range"),
        (("simulate", "rc", "--length", 10, "--out", tmp_path / "y.csv"), "must end in .npy"),
    ]:
        assert text in sentence(*words), words
    assert not (tmp_path / "new").exists()  # nothing is left behind by a request that cannot be


def test_errors_are_json_too(tmp_path):
    result = runner.invoke(app, ["fit", str(tmp_path / "missing.npy"), "--states", "2", "--json"])
    assert result.exit_code == 1
    assert "does not exist" in json.loads(result.stdout)["error"]


def test_absurd_options_are_usage_errors():
    for words in (["fit", "y.npy", "--states", "0"], ["fit", "y.npy"], ["simulate", "tt", "--length", "5"], ["fly"]):
        result = runner.invoke(app, words)
        assert result.exit_code == 2
        assert "Traceback" not in result.output


def test_help_says_why_decimation_does_not_average():
    text = re.sub(r"[^\w.,-]+", " ", runner.invoke(app, ["fit", "--help"], env={"COLUMNS": "200"}).stdout)
    assert "left out rather than averaged" in text
