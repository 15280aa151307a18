"""The public names resolve, are told to type checkers, and cost nothing until they are used."""

import ast
import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import longhmm as lh

SOURCE = Path(lh.__file__)
DOCUMENTED = sorted({module for module in lh._PUBLIC.values()} | {"longhmm.datasets", "longhmm.progress"})


def test_every_name_resolves_and_has_a_docstring():
    for name in lh.__all__:
        assert getattr(lh, name).__doc__, name
    assert set(lh.__all__) <= set(dir(lh))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lh.nonsense  # noqa: B018


def test_type_checkers_see_the_same_names():
    block = next(node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    seen = {alias.asname: node.module for node in block.body for alias in node.names}
    assert {name: module for name, module in seen.items() if name not in lh._MODULES} == lh._PUBLIC


def test_importing_loads_neither_jax_nor_anything_heavy():
    script = "import sys, longhmm; print([m for m in ('jax', 'numpyro', 'xarray', 'matplotlib') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_importing_leaves_the_configuration_of_jax_alone():
    script = (
        "import jax; before = dict(jax.config.values)\n"
        "import longhmm as lh\n"
        "for name in lh.__all__: getattr(lh, name)\n"
        "assert dict(jax.config.values) == before"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("module", DOCUMENTED)
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
