"""Finished parts are taken from disk instead of being made again, but only if they were made the same way."""

import pytest

from longhmm_reproduction import kept
from longhmm_reproduction.document import Document
from longhmm_reproduction.kept import Kept


def run(folder, settings, made):
    found = Document("rc", "tiny", 3, {"known": 1})

    def make(part):
        made.append(True)
        part.note("one", {"seconds": [2.0]})
        part.curves["one"] = {"steps": [5, 10], "transition_error": [[0.1], [0.2]], "exponent": [None, -1.0]}
        part.settings["default"] = {"windows": 5}

    Kept(folder, settings).part(found, "one", make)
    return found.finish()


def test_a_part_is_made_once_for_the_same_settings(tmp_path):
    made = []
    first = run(tmp_path / "parts", {"length": 10, "trade_off": (1, 2)}, made)
    again = run(tmp_path / "parts", {"length": 10, "trade_off": (1, 2)}, made)
    assert len(made) == 1
    assert {**first, "settings": 0} == {**again, "settings": 0}
    assert "taken" not in first["settings"]
    assert again["settings"]["taken"] == [{"part": "rc-tiny-3-one", "elsewhere": None}]
    assert again["settings"]["default"] == {"windows": 5} and again["settings"]["seed"] == 3
    run(tmp_path / "parts", {"length": 20, "trade_off": (1, 2)}, made)
    assert len(made) == 2


def test_a_part_from_another_machine_is_named(tmp_path, monkeypatch):
    made = []
    with monkeypatch.context() as there:
        there.setattr(kept, "machine", lambda: {"cores": 64})
        run(tmp_path, {}, made)
    again = run(tmp_path, {}, made)
    assert again["settings"]["taken"] == [{"part": "rc-tiny-3-one", "elsewhere": {"cores": 64}}] and len(made) == 1


def test_without_a_folder_everything_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = []
    run(None, {}, made)
    run(None, {}, made)
    assert len(made) == 2 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"made_with": {}}'])
def test_a_file_that_is_no_part_is_made_again(tmp_path, text):
    (tmp_path / "rc-tiny-3-one.json").write_text(text, encoding="utf-8")
    made = []
    assert run(tmp_path, {}, made)["results"]["one"]["seconds"] == 2.0
    assert len(made) == 1


def test_what_is_broken_off_while_it_is_written_is_made_again(tmp_path):
    (tmp_path / "rc-tiny-3-one.part").write_text('{"made_wi', encoding="utf-8")
    made = []
    run(tmp_path, {}, made)
    assert len(made) == 1 and (tmp_path / "rc-tiny-3-one.json").is_file()
