"""Data flows one way: what each module of the package may import, read from its source without running it."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "longhmm"
PACKAGE = "longhmm"
REPRODUCTION = "longhmm_reproduction"  # a package of its own, which the command line may ask for

# A module may import from its own step and from the steps before it.
FLOW = (
    {"errors", "notebook", "progress", "version"},
    {"data", "datasets"},
    {"inference"},
    {"model"},
    {"backends"},
    {"target"},
    {"samplers"},
    {"run"},
    {"posterior"},
    {"report"},
    {"references", "sklearn", "cli", "testing", "__init__", "__main__"},
)
RANK = {name: rank for rank, names in enumerate(FLOW) for name in names}
# The recursions take arrays and return arrays, whatever lies to their left.
FORBIDDEN = {"inference": {"data", "datasets", "model"}}
# Doors that lead to the right, opened only when they are called: a posterior writes its own page and offers its own
# pictures, and a run ends in a posterior, whose checks may ask for an exact sampler.
DOORS = {("posterior/posterior.py", "report"), ("posterior/plotting.py", "report"), ("run/sample.py", "posterior")}
# Up to here the package must load on a bare accelerator machine.
BARE_UP_TO = RANK["samplers"]
BARE_LIBRARIES = {"numpy", "jax", "numpyro", PACKAGE}
LONGEST = 400


class Import(NamedTuple):
    target: str  # dotted name; for `from a import b` both `a` and `a.b` are candidates, see resolve
    line: int
    at_load: bool
    for_types: bool


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports_of(tree: ast.AST, package: str, modules: set[str]) -> Iterator[Import]:
    """Every import of a module, relative ones made absolute, with when it happens."""

    def walk(node: ast.AST, at_load: bool, for_types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_load, for_types)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join(parents[: len(parents) - node.level + 1] + ([base] if base else []))
            for alias in node.names:
                # `from package import name` imports a submodule if there is one of that name.
                deeper = f"{base}.{alias.name}"
                yield Import(deeper if deeper in modules else base, node.lineno, at_load, for_types)
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            for child in node.body:
                yield from walk(child, False, True)
            for child in node.orelse:
                yield from walk(child, at_load, for_types)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from walk(child, at_load and not inside, for_types)

    return walk(tree, True, False)


def step_of(module: str) -> str:
    """The step of the flow to which a dotted module name belongs: the folder or file below the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def find_cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """One cycle of a directed graph, or None."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        for following in sorted(graph.get(node, ())):
            cycle = visit(following, [*path, node])
            if cycle:
                return cycle
        done.add(node)
        return None

    for start in sorted(graph):
        cycle = visit(start, [])
        if cycle:
            return cycle
    return None


def violations(source: Path) -> list[str]:
    """Every breach of the rules in the package whose folder is `source`, one sentence each."""
    files = {}
    for path in sorted(source.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(source).with_suffix("").parts]
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found = []
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        text = path.read_text(encoding="utf-8")
        place = path.relative_to(source).as_posix()
        step = step_of(module)
        if len(text.splitlines()) > LONGEST:
            found.append(f"{place} has {len(text.splitlines())} lines, more than {LONGEST}")
        if step not in RANK:
            found.append(f"{place} has no place in the flow")
            continue
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for imported in imports_of(ast.parse(text), package, set(files)):
            where = f"{place}:{imported.line}"
            library = imported.target.split(".")[0]
            if library == PACKAGE:
                target = step_of(imported.target)
                if target in FORBIDDEN.get(step, ()):
                    found.append(f"{where} {step} must not import {target}")
                elif (place, target) in DOORS and not imported.at_load:
                    pass
                elif RANK.get(target, len(FLOW)) > RANK[step]:
                    found.append(f"{where} {step} imports {target}, which lies to its right")
                if not imported.for_types and imported.target != module:
                    graph.setdefault(module, set()).add(imported.target)
            elif library == REPRODUCTION:
                if step != "cli" or imported.at_load:
                    found.append(f"{where} {step} imports {library}; only a command may, and only when it runs")
            elif (
                imported.at_load
                and RANK[step] <= BARE_UP_TO
                and library not in BARE_LIBRARIES
                and library not in sys.stdlib_module_names
            ):
                found.append(f"{where} loads {library}; import it inside the function that needs it")
    cycle = find_cycle(graph)
    if cycle:
        found.append("modules import each other in a circle: " + " -> ".join(cycle))
    return found


def test_the_package_keeps_its_flow():
    assert any(SOURCE.rglob("*.py"))
    assert violations(SOURCE) == []


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_a_sound_tree_passes(tmp_path):
    tree = {
        "__init__.py": "from longhmm.model.hmm import HMM\n",
        "errors.py": "",
        "data/__init__.py": "from longhmm.data.sources import read\n",
        "data/sources.py": "import json\nimport numpy as np\nfrom ..errors import E\ndef f():\n    import zarr\n",
        "inference/__init__.py": "import jax.numpy as jnp\nfrom longhmm.errors import E\n",
        "model/__init__.py": "",
        "model/hmm.py": "from longhmm import inference\nfrom longhmm.data import read\nimport numpyro.distributions\n",
        "cli/simulate.py": "def f():\n    from longhmm_reproduction import models\n",
        "posterior/posterior.py": "def f():\n    from longhmm.report.page import write\n",
        "report/plots.py": "import matplotlib\nfrom longhmm.model import hmm\n",
    }
    assert violations(write(tmp_path, tree)) == []


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"data/a.py": "from longhmm.model.hmm import HMM\n"}, "data/a.py:1 data imports model"),
        ({"data/a.py": "def f():\n    import longhmm.run\n"}, "data/a.py:2 data imports run"),
        ({"data/a.py": "from ..model import hmm\n"}, "data imports model"),
        ({"model/hmm.py": "import longhmm\n"}, "model imports __init__"),
        ({"model/hmm.py": "from longhmm import HMM\n"}, "model imports __init__"),
        ({"inference/f.py": "from longhmm.data.windows import W\n"}, "inference must not import data"),
        (
            {"inference/f.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  from longhmm.model import M\n"},
            "inference must not import model",
        ),
        ({"data/a.py": "import zarr\n"}, "data/a.py:1 loads zarr"),
        ({"samplers/a.py": "try:\n    from scipy import stats\nexcept ImportError:\n    pass\n"}, "loads scipy"),
        ({"backends/a.py": "class C:\n    import pandas as pd\n"}, "loads pandas"),
        ({"errors.py": "import rich\n"}, "loads rich"),
        ({"model/hmm.py": "x = 1\n" * 401}, "model/hmm.py has 401 lines"),
        ({"posterior/posterior.py": "from longhmm.report import page\n"}, "posterior imports report"),
        ({"posterior/a.py": "def f():\n    from longhmm.report import page\n"}, "posterior imports report"),
        ({"cli/a.py": "from longhmm_reproduction import models\n"}, "cli/a.py:1 cli imports longhmm_reproduction"),
        ({"run/a.py": "def f():\n    import longhmm_reproduction\n"}, "run/a.py:2 run imports longhmm_reproduction"),
        ({"helpers.py": ""}, "helpers.py has no place in the flow"),
        (
            {
                "model/a.py": "from longhmm.model import b\n",
                "model/b.py": "from .c import x\n",
                "model/c.py": "def f():\n    from longhmm.model.a import y\n",
            },
            "longhmm.model.a -> longhmm.model.b -> longhmm.model.c -> longhmm.model.a",
        ),
    ],
)
def test_each_rule_can_fail(tmp_path, files, complaint):
    found = violations(write(tmp_path, files))
    assert len(found) == 1
    assert complaint in found[0]
