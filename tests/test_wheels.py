"""Wheels that carry the kernel: named after their platform alone, whole, and listing what they hold."""

import base64
import ctypes
import hashlib
import platform
import sys
import zipfile
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def module(name, path):
    spec = spec_from_file_location(name, path)
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def wheels():
    return module("wheels", ROOT / "tools" / "wheels.py")


@pytest.fixture
def plain(tmp_path):
    """A wheel as this machine would build it, with a kernel of its own."""
    place = tmp_path / "longhmm-9.9-cp311-cp311-linux_x86_64.whl"
    about = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n\n"
    with zipfile.ZipFile(place, "w") as wheel:
        wheel.writestr("longhmm/__init__.py", "x = 1\n")
        wheel.writestr("longhmm/backends/native/library.so", b"old")
        wheel.writestr("longhmm-9.9.dist-info/WHEEL", about)
        wheel.writestr("longhmm-9.9.dist-info/RECORD", "")
    return place


def test_the_kernel_is_in_it_and_the_name_is_of_the_platform(wheels, plain, tmp_path):
    made = wheels.with_kernel(plain, b"new", "macosx_11_0_arm64", tmp_path)
    assert made.name == "longhmm-9.9-py3-none-macosx_11_0_arm64.whl"
    with zipfile.ZipFile(made) as wheel:
        assert wheel.testzip() is None
        files = {name: wheel.read(name) for name in wheel.namelist()}
    assert files["longhmm/backends/native/library.so"] == b"new"
    about = files["longhmm-9.9.dist-info/WHEEL"].decode()
    assert about.count("Tag:") == 1 and "Tag: py3-none-macosx_11_0_arm64\n" in about
    assert "Root-Is-Purelib: false" in about and "Wheel-Version: 1.0" in about
    record = files.pop("longhmm-9.9.dist-info/RECORD").decode().splitlines()
    assert record[-1] == "longhmm-9.9.dist-info/RECORD,,"
    for line, (name, content) in zip(record[:-1], sorted(files.items()), strict=True):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        assert line == f"{name},sha256={digest},{len(content)}"
    assert wheels.with_kernel(plain, b"new", "macosx_11_0_arm64", tmp_path).read_bytes() == made.read_bytes()


def test_every_source_of_the_kernel_is_compiled(wheels):
    setup = module("setup", ROOT / "setup.py")
    there = {path.name for path in (ROOT / setup.SOURCES).glob("*.cc")}
    assert set(setup.sources_for("x86_64")) == there
    assert set(setup.sources_for("aarch64")) == there - {"variant_avx2.cc", "variant_avx512.cc"}
    assert {target.partition("-")[0] for target, _ in wheels.PLATFORMS.values()} == {"x86_64", "aarch64"}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="another platform")
def test_what_zig_compiles_can_be_loaded(wheels, tmp_path):
    import jaxlib

    kernel = wheels.compiled("x86_64-linux-gnu.2.28", Path(jaxlib.__file__).parent / "include", tmp_path)
    (tmp_path / "loaded.so").write_bytes(kernel)
    library = ctypes.CDLL(str(tmp_path / "loaded.so"))
    library.longhmm_instruction_set.restype = ctypes.c_char_p
    assert library.longhmm_instruction_set() in (b"baseline", b"avx2", b"avx512")
