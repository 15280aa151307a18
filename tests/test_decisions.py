"""Each decision is taken in one place: which backend serves, which family an emission is, which sampler is the default.

Whoever takes it elsewhere has to be changed whenever a backend, a family or a sampler is added. What still does so is
listed; the lists may only shrink, and an entry that is no longer needed fails the test.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "longhmm"

# Functions whose answer is a backend, or whether one serves.
ASKS_BACKEND = {"available", "default_backend", "fused", "serves", "supports", "usable", "windows_backend"}
EMISSION_BASES = {"Emission", "Family"}  # what every emission is; asking for these asks for no family
DEFAULT_SAMPLER = "ControlVariateSGLD"


class Rule(NamedTuple):
    """A decision, how a module is seen to take it, where it may be taken, and where it still is."""

    decision: str
    places: Callable[[dict[str, ast.Module]], dict[str, list[int]]]  # lines of a file that take it
    homes: tuple[str, ...]
    still: frozenset[str] = frozenset()


def backend_questions(trees: dict[str, ast.Module]) -> dict[str, list[int]]:
    """Calls of a function that says which backend serves."""
    return {file: [call.lineno for call in _calls(tree, ASKS_BACKEND)] for file, tree in trees.items()}


def family_questions(trees: dict[str, ast.Module]) -> dict[str, list[int]]:
    """`isinstance` and `issubclass` on a family of emissions outside the file that defines it, and comparisons of a
    `name` with that of one."""
    homes = _families(trees)

    def elsewhere(inside: ast.AST, file: str) -> bool:
        return any(homes.get(_word(each), file) != file for each in ast.walk(inside))

    def asks(node: ast.AST, file: str) -> bool:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            return any(_name(side) == "name" for side in sides) and any(elsewhere(side, file) for side in sides)
        known = isinstance(node, ast.Call) and _name(node.func) in {"isinstance", "issubclass"}
        return known and elsewhere(node.args[1], file)

    return {file: [node.lineno for node in ast.walk(tree) if asks(node, file)] for file, tree in trees.items()}


def default_sampler_names(trees: dict[str, ast.Module]) -> dict[str, list[int]]:
    """Any use of the name of the default sampler, in code or in words."""
    return {
        file: [getattr(node, "lineno", 0) for node in ast.walk(tree) if DEFAULT_SAMPLER in _word(node)]
        for file, tree in trees.items()
    }


def _calls(tree: ast.Module, functions: set[str]) -> Iterator[ast.Call]:
    """Calls of functions or methods with these names."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) in functions)


def _name(node: ast.AST) -> str:
    """The last part of a dotted name, what is imported or defined; "" for everything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.name if isinstance(node, ast.alias | ast.ClassDef) else ""


def _word(node: ast.AST) -> str:
    """A text, or a name."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else _name(node)


def _families(trees: dict[str, ast.Module]) -> dict[str, str]:
    """Classes below model/ that derive from an emission, and the file of each."""
    inside = [(node, file) for file, tree in trees.items() if file.startswith("model/") for node in tree.body]
    classes = [(node, file) for node, file in inside if isinstance(node, ast.ClassDef)]
    found: dict[str, str] = {}
    while True:
        known = {*EMISSION_BASES, *found}
        fresh = {n.name: file for n, file in classes if n.name not in known and known & set(map(_name, n.bases))}
        if not fresh:
            return found
        found |= fresh


RULES = (
    Rule(
        "which backend serves",
        backend_questions,
        ("backends/",),
    ),
    Rule(
        "which family an emission is",
        family_questions,
        (),
    ),
    Rule(
        "which sampler is the default",
        default_sampler_names,
        ("samplers/control_variate_sgld.py", "run/sample.py"),
    ),
)


def read(source: Path) -> dict[str, ast.Module]:
    return {
        path.relative_to(source).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(source.rglob("*.py"))
    }


def complaints(rule: Rule, source: Path) -> list[str]:
    """What is wrong, one sentence each."""
    found = {
        file: lines
        for file, lines in rule.places(read(source)).items()
        if lines and not any(file == home or (home.endswith("/") and file.startswith(home)) for home in rule.homes)
    }
    new = [f"{file}:{found[file][0]} decides {rule.decision}" for file in found if file not in rule.still]
    return new + [f"{file} no longer decides {rule.decision}: strike it off" for file in rule.still - set(found)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.decision)
def test_the_package_decides_in_one_place(rule):
    assert sorted(complaints(rule, SOURCE)) == []


def test_the_default_sampler_has_the_name_that_is_looked_for():
    samplers = [tree for file, tree in read(SOURCE).items() if file.startswith("samplers/")]
    assert any(isinstance(node, ast.ClassDef) and node.name == DEFAULT_SAMPLER for s in samplers for node in s.body)


@pytest.mark.parametrize(
    ("rule", "files", "said"),
    [
        (0, {"run/a.py": "x = native.usable()\n"}, ["run/a.py:1 decides which backend serves"]),
        (0, {"backends/a.py": "x = native.usable()\n", "run/a.py": "x = usable\n"}, []),
        (
            1,
            {
                "model/e.py": "class Emission: ...\nclass Normal(Emission): ...\nx = isinstance(1, Normal)\n",
                "model/f.py": "class Wide(e.Normal): ...\n",
                "run/a.py": "a = isinstance(1, Emission)\nb = isinstance(1, int | Wide)\n",
            },
            ["run/a.py:2 decides which family an emission is"],
        ),
        (
            1,
            {
                "model/e.py": "class Normal(Emission): ...\nx = e.name == 'Normal'\n",
                "run/a.py": "a = e.name == 'normal'\nb = e.kind == 'Normal'\nc = e.name in ('Other', 'Normal')\n",
            },
            ["run/a.py:3 decides which family an emission is"],
        ),
        (
            2,
            {"run/a.py": "from b import ControlVariateSGLD as M\n"},
            ["run/a.py:1 decides which sampler is the default"],
        ),
        (2, {"run/a.py": "x = 'use ControlVariateSGLD()'\n"}, ["run/a.py:1 decides which sampler is the default"]),
        (2, {"run/sample.py": "x = lh.ControlVariateSGLD()\n"}, []),
    ],
)
def test_each_rule_sees_what_it_forbids(tmp_path, rule, files, said):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    bare = RULES[rule]._replace(still=frozenset())
    assert complaints(bare, tmp_path) == said
    stale = bare._replace(still=frozenset({"run/gone.py"}))
    assert complaints(stale, tmp_path)[-1].startswith("run/gone.py no longer decides")
