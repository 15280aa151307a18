"""Tests mirror the source: `a/b.py` is tested in `tests/a/test_b.py`, a package `a/b` in `tests/a/b/test_b.py`.

A file that would be long has a second one beside it, `test_b_what.py`. What is about several modules at once lies in
folders that have no counterpart in the source, or at the top of `tests`.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "longhmm"
# Modules without behaviour of their own, and why.
UNTESTED = {
    "__main__.py": "starts the command line, whose processes are tests of cli/",
    "backends/pallas/plan.py": "fields without methods, which the kernel reads",
    "version.py": "one number, compared with others in test_release.py",
}


def has_code(path: Path) -> bool:
    """Whether a module defines anything; packages that only say what they are do not."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body)


def complaints(source: Path, tests: Path, untested: dict[str, str]) -> list[str]:
    """What is missing or has no counterpart, one sentence each."""
    found, folders = [], dict[Path, set[str]]()
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        package = place.name == "__init__.py"
        name = place.parent.name or source.name if package else place.stem.strip("_")
        folders.setdefault(place.parent, set()).add(name)
        if package and not has_code(path):
            continue
        test = tests / place.parent / f"test_{name}.py"
        if place.as_posix() in untested:
            if test.exists():
                found.append(f"{place.as_posix()} has a test: strike it off")
        elif not test.exists():
            found.append(f"{place.as_posix()} has no {test.relative_to(tests).as_posix()}")
    gone = [each for each in untested if not (source / each).exists()]
    found += [f"{each} is no longer there: strike it off" for each in gone]
    for folder, names in folders.items():
        for test in sorted((tests / folder).glob("test_*.py")) if folder != Path(".") else ():
            stem = test.stem.removeprefix("test_")
            if not any(stem == name or stem.startswith(f"{name}_") for name in names):
                found.append(f"{test.relative_to(tests).as_posix()} tests no module of {folder.as_posix()}/")
    return found


def test_every_module_has_its_tests_and_every_test_its_module():
    assert complaints(SOURCE, TESTS, UNTESTED) == []


@pytest.mark.parametrize(
    ("source", "tests", "said"),
    [
        (["a.py", "b/__init__.py", "b/c.py"], ["test_a.py", "b/test_c.py", "b/test_c_more.py", "other/test_x.py"], []),
        (["b/c.py"], [], ["b/c.py has no b/test_c.py"]),
        (["b/full/__init__.py"], ["b/full/test_full.py"], []),
        (["b/full/__init__.py"], [], ["b/full/__init__.py has no b/full/test_full.py"]),
        (["b/c.py"], ["b/test_c.py", "b/test_d.py"], ["b/test_d.py tests no module of b/"]),
        (["b/c.py", "b/plain.py"], ["b/test_c.py"], []),
        (["b/plain.py"], ["b/test_plain.py"], ["b/plain.py has a test: strike it off"]),
        (["a.py"], ["test_a.py"], ["b/plain.py is no longer there: strike it off"]),
    ],
)
def test_each_rule_can_fail(tmp_path, source, tests, said):
    for folder, names in (("longhmm", source), ("tests", tests)):
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("def f(): ...\n" if "full" in name else '"""Words."""\n', encoding="utf-8")
    listed = {"b/plain.py": "words"} if any("plain" in each for each in [*source, *said]) else {}
    assert complaints(tmp_path / "longhmm", tmp_path / "tests", listed) == said
