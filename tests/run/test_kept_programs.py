"""Programs on disk: what a process adds others find, whatever becomes of that process; old ones make room."""

import os
import signal
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

import longhmm as lh
from longhmm.run import kept_programs
from longhmm.run.compilation import SWITCH
from longhmm.run.kept_programs import linked

ENTRY = zlib.compress(os.urandom(1000))


def names(directory):
    return sorted(file.name for file in directory.iterdir())


def test_what_is_added_is_shared_at_the_end(tmp_path):
    with linked(tmp_path, "1") as own, linked(tmp_path, "1") as other:
        (own / "a-cache").write_bytes(ENTRY)
        (other / "a-cache").write_bytes(ENTRY)  # two processes may compile the same
        (other / "b-cache").write_bytes(ENTRY)
        assert names(tmp_path / "1") == []
    assert names(tmp_path) == ["1"] and names(tmp_path / "1") == ["a-cache", "b-cache"]
    with linked(tmp_path, "1") as own:
        (tmp_path / "1" / "a-cache").unlink()  # another process made room
        assert names(own) == ["a-cache", "b-cache"] and (own / "a-cache").read_bytes() == ENTRY
    assert names(tmp_path / "1") == ["b-cache"]
    with linked(tmp_path, "2") as own:
        assert names(own) == []


def test_what_was_compiled_before_an_error_is_shared_too(tmp_path):
    with pytest.raises(KeyboardInterrupt), linked(tmp_path, "1") as own:
        (own / "a-cache").write_bytes(ENTRY)
        raise KeyboardInterrupt
    assert names(tmp_path) == ["1"] and names(tmp_path / "1") == ["a-cache"]


@pytest.mark.parametrize("content", [b"", ENTRY[:-1], ENTRY[: len(ENTRY) // 2], b"\x78\x9cnonsense"])
def test_an_entry_that_was_cut_short_is_not_shared(tmp_path, content):
    with linked(tmp_path, "1") as own:
        (own / "a-cache").write_bytes(content)
    assert names(tmp_path / "1") == []


def test_an_empty_entry_is_written_anew(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "a-cache").touch()
    with linked(tmp_path, "1") as own:
        assert names(own) == []
        (own / "a-cache").write_bytes(ENTRY)
    assert (tmp_path / "1" / "a-cache").read_bytes() == ENTRY


def test_the_oldest_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_programs, "MOST", 2.5 * len(ENTRY))
    for age, (version, name) in enumerate([("0", "a"), ("1", "b"), ("1", "c")]):
        with linked(tmp_path, version) as own:
            (own / name).write_bytes(ENTRY)
            os.utime(own / name, (age, age))
    assert [names(tmp_path / each) for each in ("0", "1")] == [[], ["b", "c"]]


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path):
    left = [tmp_path / f"{kept_programs.OWN}{name}" for name in ("old", "new")]
    for each in left:
        each.mkdir()
        (each / "a-cache").write_bytes(ENTRY[:10])
    os.utime(left[0], (0, 0))
    with linked(tmp_path, "1") as own:
        assert names(own) == []
        (own / "b-cache").write_bytes(ENTRY)
    assert not left[0].exists() and left[1].exists()


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    with linked(tmp_path, "1") as own:
        (own / "a-cache").write_bytes(ENTRY)

    def refused(*_):
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with linked(tmp_path, "1") as own:
        assert (own / "a-cache").read_bytes() == ENTRY


def test_many_at_once_share_whole_entries_within_the_bound(tmp_path, monkeypatch):
    """Each adds entries and makes room while others link, move and remove them."""
    monkeypatch.setattr(kept_programs, "MOST", 20 * len(ENTRY))

    def work(number):
        for turn in range(10):
            with linked(tmp_path, str(number % 2)) as own:
                assert all((own / name).read_bytes() == ENTRY for name in os.listdir(own))
                for added in range(3):
                    (own / f"{number}-{turn}-{added}").write_bytes(ENTRY)

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == [None] * 6
    kept = [file for version in ("0", "1") for file in (tmp_path / version).iterdir()]
    assert names(tmp_path) == ["0", "1"] and 0 < len(kept) <= 20
    assert all(file.read_bytes() == ENTRY for file in kept)


KILLED = """
import os, pathlib, signal, sys
from longhmm.run.kept_programs import linked
with linked(pathlib.Path(sys.argv[1]), "1") as own:
    (own / "a-cache").write_bytes(b"half an ent")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_the_shared_programs_as_they_were(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    assert names(tmp_path / "1") == [] and len(names(tmp_path)) == 2


def test_a_damaged_entry_costs_a_compilation_and_no_more(tmp_path):
    program = (
        "from longhmm.run.compilation import cached_compilation\nimport jax\n"
        "with cached_compilation(): print(jax.jit(lambda x: jax.numpy.linalg.inv(x) @ x)(jax.numpy.eye(9)).sum())"
    )
    environment = {**os.environ, SWITCH: str(tmp_path)}
    for damaged in (False, True):
        for file in tmp_path.rglob("*-cache") if damaged else ():
            file.write_bytes(file.read_bytes()[:100])
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert done.stdout == "9.0\n", done.stderr
        assert names(tmp_path / lh.__version__)
