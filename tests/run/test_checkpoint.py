"""Stopped at any block, a run goes on to the same draws bit for bit; damaged checkpoints are told, not trusted."""

import numpy as np
import pytest

import longhmm as lh
from longhmm.gradients.flat import Flat
from longhmm.progress import Bar
from longhmm.run import checkpoint
from longhmm.run.driver import Driver
from longhmm.run.session import Request, find_tuning, run_session
from longhmm.samplers.matched_langevin import MatchedLangevin


@pytest.fixture(scope="module")
def problem():
    model = lh.HMM(2, lh.Poisson())
    params = {"transition": [[0.9, 0.1], [0.2, 0.8]], "rate": [1.0, 8.0]}
    _, counts = lh.simulate(model, params, length=30_000, seed=1)
    sequences = lh.open_data(counts)
    return model.resolve(sequences), sequences


def run(problem, place, draws=120, seed=4):
    model, sequences = problem
    request = Request(model, sequences, MatchedLangevin(), None, None, 2, draws, None, 3, None, seed, None, place, 0.0)
    found = find_tuning(request, Bar(False))
    chains = run_session(request, Bar(False), found)
    return Flat.like(chains.mode).ravel_numpy(chains.coordinates), chains


def test_resumed_draws_are_the_same_bit_for_bit(problem, tmp_path, monkeypatch):
    whole, _ = run(problem, tmp_path / "whole")
    blocks = []
    take = Driver._take

    def interrupted(self, progressed, outcome, steps, record):
        take(self, progressed, outcome, steps, record)
        blocks.append(record)
        if sum(blocks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("longhmm.run.driver.BLOCK_DRAWS", 20)
    monkeypatch.setattr(Driver, "_take", interrupted)
    partial, chains = run(problem, tmp_path / "cut")
    assert 0 < partial.shape[1] < 120 and any("Ctrl-C" in note for note in chains.notes)
    monkeypatch.setattr(Driver, "_take", take)
    resumed, _ = run(problem, tmp_path / "cut")
    np.testing.assert_array_equal(resumed, whole)
    # A finished run asked for more draws goes on.
    longer, _ = run(problem, tmp_path / "cut", draws=140)
    np.testing.assert_array_equal(longer[:, :120], whole)


def test_a_checkpoint_of_another_run_is_refused(problem, tmp_path):
    run(problem, tmp_path, draws=5)
    with pytest.raises(checkpoint.CheckpointError, match="other data or settings"):
        run(problem, tmp_path, draws=5, seed=5)


def test_damage_is_noticed(tmp_path):
    checkpoint.save(tmp_path, {"thin": 1}, {"x": np.arange(10)})
    header, arrays = checkpoint.load(tmp_path)
    assert header["thin"] == 1 and np.array_equal(arrays["x"], np.arange(10))
    file = tmp_path / checkpoint.NAME
    content = file.read_bytes()
    for damaged in (content[:-3], content[:20], b"", content[:-1] + bytes([content[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.raises(checkpoint.CheckpointError, match="damaged"):
            checkpoint.load(tmp_path)
    assert checkpoint.load(tmp_path / "nothing") is None


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, {"thin": 1}, {"x": np.arange(3)})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(checkpoint.CheckpointError, match="No space left"):
        checkpoint.save(tmp_path, {"thin": 2}, {"x": np.arange(4)})
    monkeypatch.undo()
    assert checkpoint.load(tmp_path)[0]["thin"] == 1
    assert len(list(tmp_path.iterdir())) == 1
