"""Scripts on real recordings: silent success where the data are absent, a picture and a sentence where they are."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "examples" / "recordings"
NAMES = sorted(file.stem for file in SCRIPTS.glob("*.py") if file.stem != "common")


def start(monkeypatch, name, *words):
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    monkeypatch.syspath_prepend(str(SCRIPTS))
    runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")


@pytest.mark.parametrize("name", NAMES)
def test_absent_data_are_named_and_no_failure(monkeypatch, tmp_path, capsys, name):
    with pytest.raises(SystemExit) as stopped:
        start(monkeypatch, name, "--data", tmp_path, "--out", tmp_path / "out")
    assert stopped.value.code == 0
    assert f"{name}: no data at {tmp_path}" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_channels_are_counted_whatever_the_sign_of_their_current(monkeypatch, tmp_path, capsys):
    rng = np.random.default_rng(0)
    n_open = np.repeat(rng.integers(0, 3, size=300), 10)
    (tmp_path / "deep_channel").mkdir()
    file = tmp_path / "deep_channel" / "3ch_outfinaltest1.npz"
    np.savez(file, current=(-2.0 * n_open + rng.normal(0, 0.3, n_open.size)).astype(np.float32), n_open=n_open, dt=1e-4)
    start(monkeypatch, "deep_channel", "--data", tmp_path, "--out", tmp_path)
    said = capsys.readouterr().out
    share = float(said.split("has ")[1].split("%")[0])
    assert share > 99.5  # levels lie nearly seven standard deviations apart
    assert (tmp_path / "deep_channel.png").is_file() and (tmp_path / "deep_channel.txt").read_text().strip() in said
