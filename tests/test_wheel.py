"""What users install: built as they would build it, in an environment that holds nothing else."""

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
MUST_CONTAIN = (
    "longhmm/__init__.py",
    "longhmm/py.typed",
    "longhmm/recordings/nanopore.npz",
    "longhmm/recordings/nanopore.LICENSE.rst",
    "longhmm/report/page.css",
    "longhmm/report/trace_data.js",
    "longhmm/report/trace_view.js",
    "longhmm/report/event_table.js",
)

# Every module loads with the declared dependencies alone, from the installed copy.
SCRIPT = """
import importlib, pkgutil, sys
import longhmm
import longhmm_reproduction
from longhmm.datasets import nanopore

assert longhmm.__file__.startswith(sys.prefix), longhmm.__file__
names = [
    module.name
    for package in (longhmm, longhmm_reproduction)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if module.name != "longhmm.backends.native.library"  # the kernel, which knows nothing of Python
]
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert name == "longhmm.sklearn" and "pip install scikit-learn" in str(error), (name, error)
assert nanopore().values.shape == (499_999,)
print(len(names), "modules")
"""


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The wheel and the source archive; the wheel is built from the archive, so the archive must be complete."""
    # From a clean copy: lists of files left by an earlier build would hide that one is no longer declared.
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    for name in ("src", "reproduction"):
        shutil.copytree(
            ROOT / name, checkout / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "*.so")
        )
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, checkout, cwd=folder)
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


def test_the_wheel_holds_data_types_and_notices(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
        licences = [name for name in names if ".dist-info/licenses/" in name]
        assert set(MUST_CONTAIN) <= set(names)
        assert ("longhmm/backends/native/library.so" in names) == bool(shutil.which("c++"))
        assert any(name.endswith("/LICENSE") for name in licences)
        assert any(name.endswith("/nanopore.LICENSE.rst") for name in licences)
        (licence,) = (name for name in licences if name.endswith("licenses/LICENSE"))
        assert "Apache License" in wheel.read(licence).decode()
    assert not any(name.startswith(("tests/", "benchmarks/", "examples/", "reproduction/")) for name in names)


def test_the_source_archive_holds_data_types_and_notices(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in MUST_CONTAIN} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names
    assert {f"src/longhmm/backends/native/{name}" for name in ("dispatch.cc", "processor.h", "group.h")} <= names


def test_the_wheel_works_in_a_fresh_environment(built, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", built[0], cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "modules" in run(python, "-I", "-c", SCRIPT, cwd=elsewhere)
