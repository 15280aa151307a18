"""What the command line says in its own words, and what it asks about instead of guessing."""

import numpy as np
import pytest
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.cli.language import ask_about_columns, in_options
from longhmm.data.formats.instruments import Channels, RecordedSource
from longhmm.data.sequences import Sequences
from longhmm.errors import DataError

runner = CliRunner()


def sentence(*words, code=1):
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.stderr


@pytest.mark.parametrize(
    ("python", "spoken"),
    [
        ("choose the numeric columns with columns=[...]", "choose the numeric columns with --column"),
        ("columns= must be taken from ['a']", "--column must be taken from ['a']"),
        ("choose one with dataset=, from ['x']", "choose one with --dataset, from ['x']"),
        ("dataset='x' applies to .npz", "--dataset 'x' applies to .npz"),
        ("group='ID' returns to 'a'; sort", "--group 'ID' returns to 'a'; sort"),
        ("states 0 to 1: raise n_states", "states 0 to 1: raise --states"),
        ("the folder of a=b does not exist", "the folder of a=b does not exist"),
    ],
)
def test_arguments_of_python_are_said_as_options(python, spoken):
    assert in_options(python) == spoken


def test_a_message_names_options_and_not_arguments(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(10.0))
    said = sentence("fit", tmp_path / "y.npy", "--states", 2, "--out", tmp_path / "run", "--dataset", "x")
    assert "--dataset 'x'" in said and "dataset=" not in said
    said = sentence("fit", tmp_path / "y.npy", "--states", 2, "--out", tmp_path / "run", "--column", "x")
    assert "--column must be" in said and "columns=" not in said


def test_an_option_that_is_given_twice_is_refused(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(10.0))
    start = ("fit", tmp_path / "y.npy", "--out", tmp_path / "run")
    said = sentence(*start, "--states", 2, "--emission", "gamma", "--emission", "von-mises", code=2)
    assert "--emission" in said and "one value, got 2" in said
    assert "one value, got 2" in sentence(*start, "--states", 2, "--states", 3, code=2)
    assert "no column 'b'" in sentence(*start, "--states", 2, "--column", "0", "--column", "b")  # may be repeated


def table(folder, header, *columns):
    rows = "\n".join(",".join(f"{value:g}" for value in row) for row in zip(*columns, strict=True))
    (folder / "table.csv").write_text(f"{header}\n{rows}\n")
    return folder / "table.csv"


@pytest.mark.parametrize(("header", "odd"), [("ID,step", "ID"), ("t,step", "t"), ("step,Time", "Time")])
def test_columns_that_may_be_no_observations_are_asked_about(tmp_path, header, odd):
    rng = np.random.default_rng(0)
    columns = {"ID": np.repeat([1, 2], 15), "t": np.arange(30) * 0.1, "step": rng.gamma(2, size=30)}
    columns["Time"] = np.arange(30) // 2
    file = table(tmp_path, header, *(columns[name] for name in header.split(",")))
    said = sentence("fit", file, "--states", 2, "--out", tmp_path / "run")
    assert f"of which {odd} may be no observation" in said and "--group" in said
    chosen = lh.open_data(file, columns=["step"])
    ask_about_columns(chosen)  # one column was chosen, or there is only one


def test_columns_of_observations_are_taken(tmp_path):
    rng = np.random.default_rng(1)
    ask_about_columns(lh.open_data(table(tmp_path, "x,y", rng.normal(size=30), rng.normal(size=30))))
    ask_about_columns(lh.open_data(np.column_stack([np.arange(30), rng.normal(size=30)])))  # an array has no names


def test_channels_of_an_instrument_are_chosen():
    values = np.zeros((50, 2), np.float32)

    def opened(columns=None):
        def header():
            return Channels(50, ["current", "voltage"], ["pA", "mV"], 1e3, lambda a, b, each: values[a:b, each])

        source = RecordedSource("patch.abf", header, columns)
        return Sequences(source, np.array([0, 50]))

    with pytest.raises(DataError, match="channels current, voltage; choose with --channel"):
        ask_about_columns(opened())
    ask_about_columns(opened(["current"]))


def test_one_observation_is_too_few_and_says_so(tmp_path):
    np.save(tmp_path / "one.npy", np.array([1.0]))
    said = sentence("fit", tmp_path / "one.npy", "--states", 1, "--out", tmp_path / "run")
    assert "must have at least 2 samples, has 1" in said and "--decimate" not in said


def test_a_run_that_exists_names_what_can_be_done(tmp_path):
    from longhmm.posterior.run_directory import RunDirectory

    request = {"recordings": ["y.npy"], "preprocessing": {}, "model": {}, "sample": {}}
    RunDirectory.create(tmp_path / "run", request)
    with pytest.raises(DataError, match=r"longhmm resume .*run`, or replace it with --overwrite"):
        RunDirectory.create(tmp_path / "run", request)


def test_flags_are_shown_without_a_type():
    text = runner.invoke(app, ["fit", "--help"], env={"COLUMNS": "200"}).stdout
    assert "--overwrite" in text and "bool" not in text.lower()
