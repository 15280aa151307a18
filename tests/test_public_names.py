"""The public names resolve, are told to type checkers, and cost nothing until they are used."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import re
import tomllib
from pathlib import Path

import pytest

import longhmm as lh

SOURCE = Path(lh.__file__)
# Families of emissions, transition models and samplers, and where they live; other tests register their own.
KNOWN = {name: where for registry in lh._registries() for name, where in registry.modules().items()}
REGISTERED = {name: where for name, where in KNOWN.items() if where.startswith("longhmm.")}
WHERE = {**lh._PUBLIC, **REGISTERED}
DOCUMENTED = sorted({*WHERE.values(), "longhmm.datasets", "longhmm.progress"})


def test_there_are_about_thirty_names_beside_families_and_samplers():
    assert len(lh.__all__) <= 40
    assert set(lh.__all__) & set(REGISTERED) <= {"Emission", "Tied"}  # of which families are made
    assert {"Gaussian", "StudentT", "NegativeBinomial", "NUTS", "SGRLD", "BatchRLD"} <= set(REGISTERED)


def test_every_name_resolves_and_has_a_docstring():
    for name in (*lh.__all__, *REGISTERED):
        assert getattr(lh, name).__doc__, name
    assert {*lh.__all__, *REGISTERED} <= set(dir(lh))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lh.nonsense  # noqa: B018


def test_names_are_those_that_type_checkers_see():
    block = next(node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    seen = {alias.asname: (node.module, alias.name) for node in block.body for alias in node.names}
    assert {name: f"{module}.{own}" for name, (module, own) in seen.items() if name in lh._MODULES} == lh._MODULES
    assert {name: place for name, place in seen.items() if name not in lh._MODULES} == {
        name: (module, name) for name, module in lh._PUBLIC.items()
    }
    assert set(seen) == set(lh.__all__)


def documented():
    """Every name that the reference documents, once for each time, with the module it is taken from."""
    for page in sorted((SOURCE.parents[2] / "docs" / "reference").glob("*.md")):
        for path in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.M):
            yield path.rpartition(".")[::2]


def test_the_reference_documents_every_public_name_once():
    found = list(documented())
    for module, name in found:
        try:
            importlib.import_module(f"{module}.{name}")
        except ImportError:
            assert getattr(importlib.import_module(module), name).__doc__, (module, name)
    names = [name for _, name in found]
    for name in (*lh._PUBLIC, *REGISTERED):
        assert names.count(name) == 1 or (name == "buffer_report" and names.count(name) == 2), name
    paths = [f"{module}.{name}" for module, name in found]
    for module in lh._MODULES.values():
        assert any(path == module or path.startswith(f"{module}.") for path in paths), module


def test_modules_of_public_names_are_checked_with_most_care():
    project = tomllib.loads((SOURCE.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    strict = next(each["module"] for each in project["tool"]["mypy"]["overrides"] if each.get("warn_return_any"))
    assert {module for module in WHERE.values() if module not in strict} == set()
    assert all(importlib.util.find_spec(module) for module in strict)


@pytest.mark.parametrize("module", DOCUMENTED)
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def public_functions():
    """Public functions, classes and their methods, by name, all that the reference documents included."""
    inside = {
        f"{module}.{name}": each
        for module, name in documented()
        if not inspect.ismodule(each := getattr(importlib.import_module(module), name))
    }
    for name, found in {**{name: getattr(lh, name) for name in WHERE}, **inside}.items():
        if inspect.isclass(found):
            methods = inspect.getmembers(found, lambda each: inspect.isfunction(each) or inspect.ismethod(each))
            own = [(each, one) for each, one in methods if not (one.__module__ or "").startswith("sklearn")]
            yield from ((f"{name}.{each}", method) for each, method in own if not each.startswith("_"))
        if callable(found) and not (inspect.isclass(found) and issubclass(found, Exception)):
            yield name, found


def test_arguments_have_names_of_their_own():
    """`help(posterior.forecast)` shows what can be given; a misspelt argument is refused where it is given."""
    functions = dict(public_functions())
    assert {"sample", "HMM", "Posterior.forecast", "Posterior.summary", "longhmm.testing.check_coherence"} <= set(
        functions
    )
    for name, function in functions.items():
        for parameter in inspect.signature(function).parameters.values():
            named = parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
            # Names of the distribution's parameters, or of the user's columns.
            assert named or parameter.name in ("priors", "streams"), name
