"""Scripts on real recordings: what they say where data are absent, and whether they find what small ones hold."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from longhmm_reproduction import recordings

SCRIPTS = Path(__file__).parents[2] / "examples" / "recordings"
NAMES = sorted(file.stem for file in SCRIPTS.glob("*.py") if file.stem != "common")


def load(monkeypatch, name, *, run_name="loaded"):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name=run_name)


def start(monkeypatch, name, *words):
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    load(monkeypatch, name, run_name="__main__")


def sentence(monkeypatch, folder, name, *words):
    """What a script says of the recordings in a folder; its picture must be there, too."""
    start(monkeypatch, name, "--data", folder, "--out", folder / "out", *words)
    assert (folder / "out" / f"{name}.png").stat().st_size > 10_000
    return json.loads((folder / "out" / f"{name}.json").read_text(encoding="utf-8"))


def persistent(rng, n_states, length, stay):
    """A path that changes to any state, its own included, once in `stay` steps on average."""
    changes = np.flatnonzero(rng.random(length) < 1 / stay)
    lengths = np.diff(np.concatenate([[0], changes, [length]]))
    return np.repeat(rng.integers(0, n_states, lengths.size), lengths)


@pytest.mark.parametrize("name", NAMES)
def test_absent_data_are_named_and_no_failure(monkeypatch, tmp_path, capsys, name):
    with pytest.raises(SystemExit) as stopped:
        start(monkeypatch, name, "--data", tmp_path, "--out", tmp_path / "out")
    assert stopped.value.code == 0
    assert f"{name}: no data at {tmp_path}" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [("--observations", "-5"), ("--observations", "0"), ("--draws", "few")])
def test_numbers_that_make_no_sense_are_refused_in_one_sentence(monkeypatch, tmp_path, capsys, words):
    with pytest.raises(SystemExit) as stopped:
        start(monkeypatch, "genome", "--data", tmp_path, *words)
    assert stopped.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {words[0]}: must be a whole number of at least 1, got '{words[1]}'" in said


def test_a_slow_clock_of_labels_is_found_and_set(monkeypatch):
    script = load(monkeypatch, "deep_channel")
    rng = np.random.default_rng(0)
    labels = persistent(rng, 4, 20_000, 5)
    current = labels[np.rint(np.arange(20_000) * 0.9925).astype(int)] + rng.normal(0, 0.3, 20_000)
    current[::100] = np.nan
    truth, slow = script["in_step"](labels, current)
    assert slow == pytest.approx(0.0075, abs=1.01e-5)
    assert np.mean(truth == np.rint(current)) > 0.85  # noise of 0.3 rounds to the right number in 90 % of the samples
    assert script["in_step"](labels, labels + rng.normal(0, 0.3, 20_000))[1] == 0.0
    assert script["mean_stay"](np.array([1, 1, 0, 1, 0, 0, 0, 1]), 1) == 4 / 3


def test_flares_are_matched_and_peaks_must_stand_out(monkeypatch):
    script = load(monkeypatch, "goes")
    ours, theirs = np.array([0, 1, 1, 0, 2, 2, 0, 3, 3]), np.array([0, 0, 7, 0, 0, 0, 0, 8, 8])
    watched = np.array([True] * 7 + [False, True])
    assert script["_shared"](ours, theirs, watched) == "1 of 2"  # the third was not watched throughout
    flux = pd.Series([-7, -5.5, -7, -5.9, -6.1, -5.95, -7, np.nan, -4.5, -7])
    np.testing.assert_array_equal(script["_peaks"](flux, -6.0), [1, 3, 8])  # the shallow double peak counts once
    np.testing.assert_array_equal(script["_peaks"](flux, -5.0), [8])


def test_chromatin_finds_where_the_lines_differ(monkeypatch, tmp_path):
    rng = np.random.default_rng(1)
    marks = np.array(["CTCF", "H3K27ac", "H3K27me3", "H3K36me3", "H3K4me1", "H3K4me2"])
    probs = np.full((6, 6), 0.02) + np.vstack([np.zeros(6), 0.85 * np.eye(6)[:5] + 0.5 * np.eye(6)[1:]])
    (tmp_path / "chromhmm").mkdir()
    for cell, rare in (("GM12878", 0.02), ("K562", 0.20)):  # the state of CTCF and H3K27ac
        states = np.repeat(rng.choice(6, 300, p=[0.6 - rare, rare, 0.1, 0.1, 0.1, 0.1]), 20)
        bins = (rng.random((states.size, 6)) < probs[states]).astype(np.uint8)
        np.savez(tmp_path / "chromhmm" / f"{cell}_chr11.npz", X=bins, marks=marks)
    said = sentence(monkeypatch, tmp_path, "chromatin")["sentence"]
    assert "6,000 and 6,000 bins" in said
    assert "differ most in the state led by CTCF, H3K27ac" in said


@pytest.mark.slow
def test_channels_are_counted_and_the_clock_is_reported(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "deep_channel").mkdir()
    for name in load(monkeypatch, "deep_channel")["RECORDS"]:
        labels = persistent(rng, int(name[0]) + 1, 6000, 8)
        slow = 0.008 if name.startswith("5") else 0.0
        shown = labels[np.rint(np.arange(6000) * (1 - slow)).astype(int)]
        current = -2.7 + 1.2 * shown + rng.normal(0, 0.15, 6000)
        if name.startswith("5"):  # interference, and a converter that ends at 5
            current[1000:1300] += rng.normal(0, 3.0, 300)
        np.savez(tmp_path / "deep_channel" / f"{name}.npz", current=np.clip(current, -5, 5), n_open=labels, dt=1e-4)
    found = sentence(monkeypatch, tmp_path, "deep_channel", "--draws", "200")
    rows = {row[0]: row for row in found["table"][1:]}
    assert len(rows) == 4
    for row in rows.values():
        assert float(row[1].rstrip("%")) > 98.5  # levels are eight standard deviations apart
    clock = rows["5ch_outfinaltest161"][4]
    assert float(clock.removesuffix("% slow")) == pytest.approx(0.8, abs=0.02)
    assert rows["3ch_outfinaltest1"][4] == "right"
    assert 3.0 < float(rows["5ch_outfinaltest161"][2].rstrip("%")) < 6.0  # 300 of 6000 samples are disturbed
    assert rows["3ch_outfinaltest1"][2] == "0.0%"


@pytest.mark.slow
def test_stretches_of_the_genome_have_their_composition(monkeypatch, tmp_path):
    rng = np.random.default_rng(2)
    states = np.repeat(rng.random(100) < 0.3, 500).astype(int)
    cumulative = np.cumsum([[0.35, 0.15, 0.15, 0.35], [0.2, 0.3, 0.3, 0.2]], axis=1)
    letters = np.sum(rng.random(50_000)[:, None] > cumulative[states], axis=1)
    (tmp_path / "ecoli").mkdir()
    np.save(tmp_path / "ecoli" / "ecoli536.npy", letters.astype(np.uint8))
    said = sentence(monkeypatch, tmp_path, "genome", "--draws", "200", "--observations", "40000")["sentence"]
    assert "40,000 bases" in said
    low, high = (float(part.split("(")[0].split()[-1]) for part in said.split(" %")[:2])
    assert low == pytest.approx(30.0, abs=1.5) and high == pytest.approx(60.0, abs=1.5)  # four standard errors


@pytest.mark.slow
def test_planted_flares_are_found_and_dips_are_not(monkeypatch, tmp_path):
    rng = np.random.default_rng(3)
    minutes = 20 * 1440
    time = np.datetime64("2017-09-01T00:00:00") + np.arange(minutes) * np.timedelta64(60, "s")
    sun = -7 + 0.3 * np.sin(np.arange(minutes) / 5000)  # a background that drifts
    for begin in range(700, minutes - 700, 700):  # 40 flares that rise to ten times the background and decay
        sun[begin : begin + 40] += np.exp(-np.arange(40) / 30)
    (tmp_path / "goes_xrs").mkdir()
    for name in ("goes13", "goes15"):
        # Noise that wanders, in steps, so that there are levels to be found below the flares
        noise = np.array([-0.06, -0.02, 0.02, 0.06])[persistent(rng, 4, minutes, 10)] + rng.normal(0, 0.01, minutes)
        flux = 10 ** (sun + noise)
        flux[3000:3020] *= 0.05  # the earth hides the sun
        flux[10_000:10_500] = np.nan  # a gap that cuts the record in two
        np.savez(tmp_path / "goes_xrs" / f"{name}_1min.npz", time=time, xl=flux.astype(np.float32))
    said = sentence(monkeypatch, tmp_path, "goes", "--draws", "100")["sentence"]
    assert "in 4 sequences" in said
    planted = np.arange(700, minutes - 700, 700)
    seen = int(np.sum((planted + 40 < 10_000) | (planted >= 10_500)))
    assert f"{seen} and {seen} flares" in said
    assert f"{seen} of {seen} of GOES-13 were found in GOES-15" in said
    assert "0 of 0 of class M or above" in said


@pytest.mark.slow
def test_watch_tells_exercises_that_differ(monkeypatch, tmp_path):
    rng = np.random.default_rng(4)
    labels = np.tile(np.arange(4), 3)
    lengths = rng.integers(250, 350, labels.size)
    postures = rng.normal(0, 4, (8, 6))
    recordings_ = []
    for label, length in zip(labels, lengths, strict=True):  # each exercise goes between two postures of its own
        recordings_.append(postures[2 * label + persistent(rng, 2, length, 15)] + rng.normal(0, 0.3, (length, 6)))
    (tmp_path / "watch").mkdir()
    values = np.concatenate(recordings_).astype(np.float32)
    np.savez(tmp_path / "watch" / "watch_concat.npz", X=values, lengths=lengths, y=labels)
    said = sentence(monkeypatch, tmp_path, "smartwatch")["sentence"]
    assert f"12 recordings, {lengths.sum():,} samples" in said
    assert "tells the exercise of 100% of" in said
    assert "right for 25%" in said


def test_page_takes_sentence_table_command_and_machine_from_the_files(tmp_path):
    assert recordings.section(tmp_path) == []
    machine = {"cores": 3, "processor": "abacus", "jax": "9.9", "device": "wood"}
    found = {"sentence": "Beads: 12 of them.", "table": [["bead", "side"], ["one", "left"]], "seconds": 7}
    found |= {"command": "python beads.py --out here", "machine": machine}
    (tmp_path / "beads.json").write_text(json.dumps(found), encoding="utf-8")
    page = "\n".join(recordings.section(tmp_path))
    for part in (
        "Beads: 12 of them.", "| bead | side |\n|---|---|\n| one | left |\n", f"![beads]({tmp_path.name}/beads.png)",
        "`python beads.py --out here`, in 7 seconds on 3 cores (abacus), JAX 9.9 on wood.",
    ):  # fmt: skip
        assert part in page
