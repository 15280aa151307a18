"""Experiments load, and chains run, with NumPy, JAX and NumPyro alone: large ones run on machines that have no more."""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError("not on this machine: " + name)
sys.meta_path.insert(0, Refuse())
sys.path[:0] = {folders!r}
"""
BLOCKED = {"xarray", "arviz", "blackjax", "matplotlib", "typer", "rich", "zarr", "pandas", "optax"}


def run_bare(code):
    script = REFUSE.format(blocked=BLOCKED, folders=[str(ROOT / "src"), str(ROOT / "reproduction")]) + textwrap.dedent(
        code
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)


def test_every_experiment_loads_on_a_bare_machine():
    done = run_bare(
        """
        import importlib
        from longhmm_reproduction import catalogue
        for module in set(catalogue._WHERE.values()):
            assert importlib.import_module("longhmm_reproduction." + module).SIZES.keys() == set(catalogue.SCALES)
        print("loaded")
        """
    )
    assert done.stdout.strip() == "loaded", done.stderr
