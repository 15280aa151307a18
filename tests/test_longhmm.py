"""Importing longhmm costs nothing, changes nothing, and offers what registers itself."""

import subprocess
import sys

import longhmm as lh
from longhmm.model.registry import EMISSIONS


def test_a_family_that_registers_itself_is_a_public_name(monkeypatch):
    monkeypatch.setattr(EMISSIONS, "_registered", dict(EMISSIONS._registered))

    @EMISSIONS.register("my-own")
    class MyOwn(lh.Poisson):
        pass

    monkeypatch.setattr(sys.modules[__name__], "MyOwn", MyOwn, raising=False)
    assert "MyOwn" in dir(lh) and lh.MyOwn is MyOwn


def test_importing_loads_neither_jax_nor_anything_heavy():
    script = "import sys, longhmm; print([m for m in ('jax', 'numpyro', 'xarray', 'matplotlib') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_importing_leaves_the_configuration_of_jax_alone():
    script = (
        "import jax; before = dict(jax.config.values)\n"
        "import longhmm as lh\n"
        "for name in dir(lh): getattr(lh, name)\n"
        "assert dict(jax.config.values) == before"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
