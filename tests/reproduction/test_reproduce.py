"""The command, from the outcome of an experiment to files and JSON; and every experiment at its smallest."""

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from longhmm.cli import app
from longhmm.errors import DataError
from longhmm_reproduction import catalogue, report, summary

METHODS = ("buffered", "unbuffered", "iid", "default")
OTHERS = {
    "ion": ("gibbs", "default", "buffered", "batch"),
    "lognormal": (
        "lognormal-k2",
        "gaussian-k2",
        "buffered",
        "gaussian-buffered",
        "default",
    ),
    "variational": ("gibbs-rc-overlap", "svi-rc-overlap"),
}
METRICS = ("predictive_log_prob", "transition_error", "seconds", "observations_touched")


def outcome(name, scale, seed, keep=None):
    """What an experiment on reversed cycles returns, with numbers that were not computed."""
    rng = np.random.default_rng(seed)

    def curve(looks):
        rising = np.arange(1.0, looks + 1).tolist()
        rows = rng.uniform(0.1, 1.0, size=(looks, 2)).tolist()
        along = {
            "steps": rising,
            "seconds": rising,
            "touched": rising,
            "buffer": [3] * looks,
            "exponent": [-1.0] * looks,
        }
        return {"predictive_log_prob": rows, "predictive_loss": rows, "transition_error": rows, **along}

    repetitions = {each: {metric: [0.1, 0.2] for metric in METRICS} for each in METHODS}
    results = {each: {key: 0.15 for metric in METRICS for key in (metric, f"{metric}_se")} for each in METHODS}
    machine = {"cores": 2, "processor": "P", "device": "cpu", "jax": "1"}
    settings = {"scale": scale, "seed": seed, "length": 10, "machine": machine, "total_seconds": 1.0}
    settings["truth"] = {"predictive_log_prob": -1.0}
    curves = {each: curve(2 if each == "default" else 4) for each in METHODS}
    found = {"experiment": name, "settings": settings, "results": results, "repetitions": repetitions}
    return {**found, "curves": curves}


def test_the_command_writes_figures_and_a_page_and_prints_one_document(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "run", outcome)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "rc", "--scale", "tiny", "--json", "--seed", "3"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found) == {"experiment", "settings", "results"} and found["settings"]["seed"] == 3
    folder = tmp_path / "runs" / "rc-tiny"
    assert {file.name for file in folder.iterdir()} == {
        "rc-tiny.png", "rc-tiny.md", "rc-tiny.json", "index.md"
    }  # fmt: skip
    assert (folder / "rc-tiny.png").read_bytes().startswith(b"\x89PNG")
    assert "| buffered | 0.15 ± 0.1 |" in (folder / "rc-tiny.md").read_text(encoding="utf-8")
    assert "curves" in json.loads((folder / "rc-tiny.json").read_text(encoding="utf-8"))


def test_all_experiments_print_a_list(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "run", outcome)
    monkeypatch.setattr(catalogue, "NAMES", ("dd", "rc"))
    done = CliRunner().invoke(app, ["reproduce", "all", "--scale", "tiny", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert [each["experiment"] for each in json.loads(done.stdout)] == ["dd", "rc"]


@pytest.mark.parametrize(
    "words", [("reproduce", "rc", "--scale", "tiny"), ("simulate", "rc", "--length", "9", "--out", "rc.npy")]
)
def test_an_installation_without_the_experiments_says_so(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["longhmm.cli.reproduce"], "find_spec", lambda name: None)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "in the package longhmm_reproduction, which is not installed here" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.NAMES)
def test_every_experiment_runs_at_its_smallest(tmp_path, name):
    done = CliRunner().invoke(app, ["reproduce", name, "--scale", "tiny", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    for kind in ("png", "md", "json"):
        assert (tmp_path / f"{name}-tiny.{kind}").stat().st_size > 500
    results = found["results"]
    if name in OTHERS:
        assert set(results) == set(OTHERS[name])
        for metrics in results.values():
            assert all(np.isfinite(metrics[key]) for metric in METRICS for key in (metric, f"{metric}_se"))
        whole = json.loads((tmp_path / f"{name}-tiny.json").read_text(encoding="utf-8"))
        for method in {"buffered", "batch"} & set(results):  # errors fall
            errors = np.mean(whole["curves"][method]["transition_error"], axis=1)
            assert errors[-1] < 0.5 * errors[0]
        if name == "ion":
            assert results["default"]["transition_error"] < whole["recordings"]["nanopore"]["target_error"]
            assert results["buffered"]["predictive_log_prob"] > whole["curves"]["buffered"]["predictive_log_prob"][0][0]
        elif name == "lognormal":
            assert results["lognormal-k2"]["predictive_log_prob"] > results["gaussian-k2"]["predictive_log_prob"]
            assert results["lognormal-k2"]["transition_error"] < 0.1 < results["gaussian-k2"]["transition_error"]
        else:
            assert results["svi-rc-overlap"]["least_sd_ratio"] < results["svi-rc-overlap"]["median_sd_ratio"] < 1.5
            assert results["gibbs-rc-overlap"]["least_correlation_ess"] > 4
    else:
        assert set(results) == set(METHODS)
        for metrics in results.values():
            assert set(metrics) > {f"{metric}{end}" for metric in METRICS for end in ("", "_se")}
            assert all(np.isfinite(value) for value in metrics.values())
        # What holds at every size: dynamics help, and a full fit is best.
        errors = {method: metrics["transition_error"] for method, metrics in results.items()}
        assert errors["default"] < errors["buffered"] < errors["iid"]
        assert results["buffered"]["predictive_log_prob"] > results["iid"]["predictive_log_prob"]


def test_readme_and_summary_take_their_numbers_from_outcomes(tmp_path):
    outcomes = [outcome("rc", "tiny", 0), outcome("dd", "tiny", 0), outcome("rc-hard", "tiny", 0)]
    outcomes[1]["results"]["default"]["transition_error"] = 0.0321
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{summary.BEGIN}\nold\n{summary.END}\nafter\n", encoding="utf-8")
    summary.write_readme(outcomes, readme, "docs")
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "![rc-hard](docs/rc-hard-tiny.png)" in text and "0.032 ± 0.1 |" in text
    (tmp_path / "recordings").mkdir()
    machine = {"cores": 2, "processor": "abacus", "jax": "0", "device": "wood"}
    found = {"sentence": "Flares were found.", "command": "python goes.py", "seconds": 1, "machine": machine}
    (tmp_path / "recordings" / "goes.json").write_text(json.dumps(found), encoding="utf-8")
    page = summary.write_summary(outcomes, tmp_path).read_text(encoding="utf-8")
    assert "Flares were found." in page and "(recordings/goes.png)" in page
    assert page.count("| [dd-tiny](dd-tiny.md) | buffered beats unbuffered") == 2


def test_the_page_says_how_the_figure_is_to_be_read():
    found = outcome("rc", "tiny", 0)
    found["settings"] |= {
        "workers": 3,
        "trade_off": [],
        "default": [{"windows": 5}, {"stopped": "stopped at the mode, since it is late"}],
    }
    page = report.as_page(found, "rc-tiny")
    assert "--seed 0 --workers 3`, in 1 seconds on 2 cores" in page and "every repetition has its own data" in page
    assert "In 1 of 2 repetitions `default` stopped at the mode, since it is late." in page
    assert "- `default`" not in page and "- `length`: 10" in page


def test_the_page_names_what_earlier_runs_had_finished():
    found = outcome("rc", "tiny", 0)
    other = {"cores": 64, "processor": "Q"}
    found["settings"]["taken"] = [{"part": "one", "elsewhere": None}, {"part": "two", "elsewhere": other}]
    page = report.as_page(found, "rc-tiny")
    assert "2 parts were finished by earlier runs. Of these, `two` ran on 64 cores (Q)" in page
    assert "in 1 seconds" not in page


def test_full_size_is_kept_until_it_is_done(tmp_path, monkeypatch):
    def run(name, scale, seed, keep):
        assert keep == tmp_path / "parts"
        keep.mkdir()
        (keep / "part.json").write_text("{}", encoding="utf-8")
        return outcome(name, scale, seed)

    monkeypatch.setattr(catalogue, "run", run)
    done = CliRunner().invoke(app, ["reproduce", "rc", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "rc-paper.md").is_file() and not (tmp_path / "parts").exists()


def test_a_readme_without_marks_is_left_alone(tmp_path):
    (tmp_path / "README.md").write_text("text", encoding="utf-8")
    with pytest.raises(DataError, match="marks"):
        summary.write_readme([outcome("rc", "tiny", 0)], tmp_path / "README.md", "docs")
