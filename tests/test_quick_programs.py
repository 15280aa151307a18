"""That tests compile quickly where the compiler can, and go on where it cannot."""

from pathlib import Path

import jaxlib
import pytest

import quick_programs


def test_flags_are_looked_for_in_the_libraries(tmp_path):
    (tmp_path / "library.so").write_bytes(b"\0xla_some_flag\0xla_some_flag_of_old\0")
    (tmp_path / "empty.so").touch()
    (tmp_path / "notes.txt").write_bytes(b"xla_some\0")
    assert quick_programs.known("xla_some_flag", tmp_path)
    assert not quick_programs.known("xla_some", tmp_path)
    assert quick_programs.known("xla_backend_optimization_level", Path(jaxlib.__file__).parent)


@pytest.mark.parametrize(("before", "after"), [(None, "--xla_some_flag=false"), ("--xla_other=1", "--xla_other=1")])
def test_flags_of_the_user_stay(monkeypatch, before, after):
    monkeypatch.setattr(quick_programs, "NAME", "xla_some_flag")
    monkeypatch.setattr(quick_programs, "known", lambda name, folder: True)
    monkeypatch.setenv("XLA_FLAGS", before) if before else monkeypatch.delenv("XLA_FLAGS", raising=False)
    quick_programs.compile_quickly()
    assert quick_programs.os.environ["XLA_FLAGS"] == after
    monkeypatch.setattr(quick_programs, "known", lambda name, folder: False)
    monkeypatch.delenv("XLA_FLAGS")
    quick_programs.compile_quickly()
    assert "XLA_FLAGS" not in quick_programs.os.environ
