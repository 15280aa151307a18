"""The command line as a whole: wrong input ends in one sentence, for people or in JSON."""

import json
import re

import numpy as np

from cli.calls import runner, sentence
from longhmm.cli import app


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
