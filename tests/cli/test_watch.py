"""`longhmm watch`: what it prints of a recording that grows is what a pass over all of it finds."""

import json
import threading
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import longhmm as lh
from longhmm.cli import app
from longhmm.posterior.run_directory import RunDirectory
from posterior.fakes import known_states

runner = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose recording had every second sample left out, and was normalised; and the lines of another."""
    folder, setting = tmp_path_factory.mktemp("watched"), known_states(400)
    values = np.asarray(setting.sequences.rows(0, 400).values)[:, 0].astype(float)
    lines = [f"{t};{float(2.0 * y + 10.0)!r};x" for y in values for t in (0, 1)]
    lines[6] = "0;;"  # a gap
    steps = {"decimate": 2, "normalise": True, "centre": [10.0], "scale": [2.0]}
    request = {"recordings": ["y.csv"], "columns": ["current"], "rate": 100.0, "unit": "pA", "model": {}, "sample": {}}
    made = RunDirectory.create(folder / "run", {**request, "preprocessing": steps})
    made.save(setting.posterior())
    values[3] = np.nan
    return made.path, ["time;current;what", *lines], values


def watched(place, text=None, *more, code=0):
    result = runner.invoke(app, ["watch", str(place), *map(str, more)], input=text)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def events_of(run):
    """What the smoother over all data says, in samples of the file."""
    place, _, values = run
    live = lh.load(place).online()
    path = np.concatenate([live.update(values).states, live.finish().states])
    starts = np.flatnonzero(np.diff(path, prepend=-1))
    return [(2 * int(a), 2 * int(b), int(path[a])) for a, b in zip(starts, [*starts[1:], 400], strict=True)], live.lag


def test_events_from_standard_input(run):
    expected, lag = events_of(run)
    assert len(expected) > 20
    found = watched(run[0], "\n".join(run[1]))  # the last line without an end
    first, header, *printed = found.stdout.splitlines()
    assert f"{2 * lag} samples ({2 * lag / 100:g} s)" in first
    assert header == "start,end,start_s,end_s,state,level"
    rows = [line.split(",") for line in printed]
    assert [(int(row[0]), int(row[1]), int(row[4])) for row in rows] == expected
    np.testing.assert_allclose([float(row[3]) for row in rows], [end / 100 for _, end, _ in expected])
    levels = {row[4]: float(row[5]) for row in rows}
    assert abs(levels["0"] - 8.0) < 0.6 and abs(levels["1"] - 14.0) < 0.6


def test_events_of_a_file_that_grows_are_told_as_they_are_settled(run, tmp_path):
    place, lines, _ = run
    file = tmp_path / "growing.csv"
    file.write_text("\n".join(lines[:20]) + "\n" + lines[20][:3])

    def write():
        with file.open("a") as stream:
            for first in (20, 300, 501):
                time.sleep(0.3)
                rest = lines[20][3:] if first == 20 else lines[first]
                last = {20: 300, 300: 501, 501: len(lines)}[first]
                stream.write("\n".join([rest, *lines[first + 1 : last]]) + "\n")
                stream.flush()

    writer = threading.Thread(target=write)
    writer.start()
    document = json.loads(watched(place, None, "--follow", file, "--idle", 3, "--json").stdout)
    writer.join()
    expected, lag = events_of(run)
    assert (document["samples"], document["rows"], document["lag"]) == (800, 400, lag)
    assert [(e["start"], e["end"], e["state"]) for e in document["events"]] == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time;current;what\n0;1.5;a\n1;b;c\n2;oh;d\n", "row 2 must have a number in column 'current', or nothing"),
        ("time;current;what\n0;1.5;a\n1;2\n2;3\n", "row 2 has 2 fields but must have 3"),
        ("time;amps\n0;1.5\n1;2\n", "no column 'current'"),
    ],
)
def test_wrong_lines_end_in_a_sentence(run, text, complaint):
    said = watched(run[0], text, code=1).stderr
    assert complaint in said and said.count("\n") == 1


def test_what_needs_the_whole_recording_is_refused(run, tmp_path):
    request = json.loads((run[0] / "run.json").read_text())
    request["preprocessing"]["detrend"] = True
    made = RunDirectory.create(tmp_path / "run", request)
    assert "--detrend" in watched(made.path, "1\n2\n", code=1).stderr
    assert "cannot be read" in watched(run[0], None, "--follow", tmp_path / "none.csv", code=1).stderr
