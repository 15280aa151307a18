"""What commands print: JSON of plain numbers, tables that no terminal cuts, warnings in one line."""

import io
import json
import warnings

import numpy as np
import pytest
from rich.console import Console

from cli.calls import call
from longhmm.cli.output import Output, guarded, plain, seconds, shown


def test_no_number_is_cut_on_a_narrow_terminal():
    said, file = Output(False), io.StringIO()
    said.console = Console(file=file, width=80)
    rows = [(f"{n} states", n, -123456.789012, 8.333333e-12, -1.23456789, -1234.5678, 8.333333e-09) for n in (1, 2)]
    said.table(
        "Models", ["model", "n_states", "log_density", "mc_error", "per observation", "difference", "error"], rows
    )
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in file.getvalue()
    assert file.getvalue().count("8.333e-12") == 2 and file.getvalue().count("8.333e-09") == 2


def test_json_has_no_numpy_and_no_nan():
    document = {
        "a": np.float32(1.5),
        "b": np.array([1.0, np.nan]),
        "c": (np.inf, tmp := "x"),
        3: None,
        "d": np.bool_(1),
    }
    assert json.loads(json.dumps(plain(document), allow_nan=False)) == {
        "a": 1.5,
        "b": [1.0, None],
        "c": [None, tmp],
        "3": None,
        "d": True,
    }
    assert [shown(value) for value in (1234567.0, 0.000123456, 12345, float("nan"), "x")] == [
        "1,234,567",
        "0.0001235",
        "12,345",
        "",
        "x",
    ]
    assert [seconds(value) for value in (2.5, 0.002243, 5.577e-05, 3e-9)] == ["2.5 s", "2.243 ms", "55.77 µs", "3 ns"]
    assert [seconds(value) for value in (119.0, 300.0, 39240.0)] == ["119 s", "5 min", "10.9 h"]


def test_a_warning_for_users_is_one_line_without_its_place_in_the_code():

    @guarded
    def command():
        warnings.warn("the newest checkpoint is damaged; going on from the one before.", stacklevel=1)

    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("typer.echo", lambda text, err: said.append((text, err)))
        command()
    assert said == [("longhmm: the newest checkpoint is damaged; going on from the one before.", True)]


def test_tables_are_for_people_and_go_to_standard_output(known):
    folder, _ = known
    text = call("decode", folder / "run", "--out", folder / "people.csv")
    assert "events in 799 samples" in text
    assert str(folder / "people.csv") in text
