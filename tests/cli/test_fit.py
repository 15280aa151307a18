"""`longhmm fit`, `resume` and `compare`, on one real fit."""

import json
import shutil

import numpy as np
import pytest

import longhmm as lh
from cli.calls import FIT, call, runner, sentence
from longhmm.cli import app


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


def test_resume_does_the_checks_that_were_cut_short(fitted, tmp_path, monkeypatch):
    from longhmm.run import sample as module

    shutil.copytree(fitted[0], tmp_path / "run")
    judged = module.judge

    def short(posterior, limit):
        posterior.notes = (*posterior.notes, "Ctrl-C left no time to check the draws for bias")
        posterior.diagnose()

    with monkeypatch.context() as patch:
        patch.setattr(module, "judge", short)
        assert "left no time" in call("resume", tmp_path / "run", "--draws", 32, "--json")
    seen = []
    monkeypatch.setattr(module, "judge", lambda posterior, limit: (seen.append(1), judged(posterior, limit)))
    assert "left no time" not in call("resume", tmp_path / "run", "--draws", 32, "--json")
    assert seen == [1]


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
