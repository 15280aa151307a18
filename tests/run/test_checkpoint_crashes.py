"""What lies on disk is whole or refused: damage, full disks, other versions, two processes at once."""

import contextlib
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import longhmm as lh
from longhmm.errors import DataError, LongHMMError
from longhmm.posterior import store
from longhmm.posterior.run_directory import RunDirectory
from longhmm.run import checkpoint
from longhmm.run.checkpoint import RunInUseError, locked
from posterior.fakes import known_states

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(lh.__file__).parents[1])}
HOLDER = """
import sys
from longhmm.run.checkpoint import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def saved(place, thin=1, length=10):
    checkpoint.save(place, {"thin": thin}, {"x": np.arange(length)})


def test_every_changed_or_missing_byte_is_noticed(tmp_path):
    saved(tmp_path)
    header, arrays = checkpoint.load(tmp_path)
    assert header == {"thin": 1} and np.array_equal(arrays["x"], np.arange(10))
    file = tmp_path / checkpoint.NAME
    content = file.read_bytes()
    assert len(content) > 300
    flipped = [content[:n] + bytes([content[n] ^ 1]) + content[n + 1 :] for n in range(len(content))]
    for damaged in [content[:n] for n in range(len(content))] + flipped:
        file.write_bytes(damaged)
        with pytest.raises(checkpoint.CheckpointError, match="damaged"):
            checkpoint.load(tmp_path)
    assert checkpoint.load(tmp_path / "nothing") is None


def test_the_checkpoint_before_serves_where_the_newest_is_damaged_or_missing(tmp_path):
    for thin in (1, 2, 3):
        saved(tmp_path, thin)
    file = tmp_path / checkpoint.NAME
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.warns(UserWarning, match="is damaged; going on from the checkpoint before"):
        assert checkpoint.load(tmp_path)[0]["thin"] == 2
    file.unlink()  # killed between the two renamings
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint.load(tmp_path)[0]["thin"] == 2
    saved(tmp_path, 4)
    assert checkpoint.load(tmp_path)[0]["thin"] == 4


def test_other_versions_and_forgeries_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 99)
    saved(tmp_path)
    monkeypatch.undo()
    with pytest.raises(checkpoint.CheckpointError, match="another version of longhmm \\(format 99"):
        checkpoint.load(tmp_path)
    # A right digest over wrong contents: Python objects among the arrays, a header that is no mapping.
    for header, arrays in (({}, {"x": np.array([{}], object)}), ([1, 2], {})):
        (tmp_path / checkpoint.NAME).write_bytes(checkpoint.packed(header, arrays))
        with pytest.raises(checkpoint.CheckpointError, match="damaged"):
            checkpoint.load(tmp_path)


@contextlib.contextmanager
def little_room():
    """No file may grow beyond 4 kB: writing fails as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path):
    saved(tmp_path, 1)
    told = "File too large.*what was saved before is untouched"
    with little_room(), pytest.raises(checkpoint.CheckpointError, match=told):
        saved(tmp_path, 2, length=10_000)
    assert checkpoint.load(tmp_path)[0]["thin"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failed_save_leaves_the_old_posterior(tmp_path):
    place = tmp_path / "run"
    small, large = known_states(200).posterior(), known_states(200).posterior()
    small.save(place)
    large.settings["remark"] = "x" * 10_000
    with little_room(), pytest.raises(DataError, match=r"could not be written .*what was there before is untouched"):
        large.save(place)
    assert "remark" not in lh.load(place).settings
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_a_save_killed_between_its_renamings_is_mended(tmp_path):
    place = tmp_path / "run"
    posterior = known_states(200).posterior()
    posterior.save(place)
    place.rename(tmp_path / ".run.old-0123")
    np.testing.assert_array_equal(lh.load(place).draws["mean"], posterior.draws["mean"])
    assert store.read_run(place)[0]["format"] == store.FORMAT


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    saved(tmp_path)
    (tmp_path / f".{checkpoint.NAME}.4711").write_bytes(b"half")
    saved(tmp_path, 2)
    assert {each.name for each in tmp_path.iterdir()} == {checkpoint.NAME, checkpoint.NAME + checkpoint.BEFORE}


def test_two_processes_cannot_work_in_one_run(tmp_path):
    place = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert holder.stdout.readline() == "held\n"
    model = lh.HMM(2, lh.Poisson())
    with pytest.raises(RunInUseError, match=f"in use by another process \\({holder.pid}\\): wait"):
        lh.sample(model, np.arange(30) % 7, draws=1, checkpoint=place, progress=False)
    (place / "run.json").write_text(
        '{"format": "longhmm run", "version": 1, "recordings": [], "preprocessing": {}, "model": {}, "sample": {}}'
    )
    with pytest.raises(RunInUseError):
        RunDirectory.create(place, {}, overwrite=True)
    assert (place / "run.json").exists()
    holder.kill()  # the system frees the lock of a process however it ends
    holder.wait()
    with locked(place), locked(place):
        pass


def test_a_place_that_cannot_be_written_is_told_before_computing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LongHMMError, match="cannot be written"):
        lh.sample(lh.HMM(2, lh.Poisson()), np.arange(30) % 7, checkpoint=tmp_path / "file" / "run", progress=False)
