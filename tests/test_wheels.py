"""Wheels that carry the kernel: named after their platform alone, whole, and listing what they hold."""

import base64
import hashlib
import json
import platform
import re
import subprocess
import sys
import venv
import zipfile
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest
from setuptools import Distribution, Extension
from setuptools.errors import CompileError

from longhmm.backends import native

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
    everything = setup.parts_for("x86_64")
    assert {Path(setup.source_of(part)).name for part in everything} == there
    assert len({tuple(flags) for part, flags in everything.items() if "variant" in part}) == 6
    assert set(setup.parts_for("aarch64")) == {part for part in everything if "avx" not in part}
    assert {target.partition("-")[0] for target, _ in wheels.PLATFORMS.values()} == {"x86_64", "aarch64"}


@pytest.mark.parametrize(("flags", "best"), [("avx512", "avx512"), ("avx2", "avx2"), (None, "baseline")])
def test_a_checkout_is_built_for_its_own_processor(flags, best):
    """With what runs on every other, and knowing what was left out; a wheel holds everything."""
    setup = module("setup", ROOT / "setup.py")
    everything = setup.parts_for("x86_64")
    here = setup.only_for(setup.NEEDED[flags] if flags else {"sse2"}, everything)
    variants = {name for name in here if name.startswith("variant")}
    assert variants == {*setup.variant(best), *setup.variant("baseline")}
    for name in setup.variant(best):  # what runs here is compiled as it is for a wheel
        assert here[name] == everything[name]
    assert set(here["dispatch"]) == {f"-DWITHOUT_{each.upper()}" for each in {"avx512", "avx2"} - {best}}


@pytest.mark.parametrize(("inplace", "given", "count"), [(True, "", 1), (True, "all", 3), (False, "", 3)])
def test_only_a_checkout_leaves_instructions_out(inplace, given, count, monkeypatch, tmp_path):
    setup = module("setup", ROOT / "setup.py")
    monkeypatch.setenv("LONGHMM_INSTRUCTIONS", given)
    monkeypatch.setattr(setup, "instructions_here", lambda: {"sse2"})
    monkeypatch.setattr(setup.platform, "machine", lambda: "x86_64")
    build = setup.BuildKernel(Distribution({"ext_modules": [Extension("longhmm.backends.native.library", [])]}))
    compiled = []
    fake = SimpleNamespace(
        compile=lambda sources, **_: compiled.extend(sources) or [], link_shared_object=lambda *_, **__: None
    )
    monkeypatch.setattr(setup.build_ext, "run", lambda self: self.build_extension(self.distribution.ext_modules[0]))
    build.inplace, build.compiler, build.build_temp, build.build_lib = inplace, fake, "nowhere", str(tmp_path)
    build.package = None
    build.run()
    assert sum("variant" in name for name in compiled) == 2 * count


@pytest.mark.parametrize("asked", ["manylinux_2_17_x86_64", "manylinux_2_39_x86_64"])
def test_a_wheel_that_asks_for_more_than_its_name_says_is_refused(wheels, asked, monkeypatch):
    said = f'x is consistent with the\nfollowing platform tag: "{asked}".'
    monkeypatch.setattr(wheels.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=said))
    wheel = Path("longhmm-9.9-py3-none-manylinux_2_17_x86_64.whl")
    if asked in wheel.name:
        assert wheels.audited(wheel) == wheel
    else:
        with pytest.raises(SystemExit, match="is not what its name says"):
            wheels.audited(wheel)


@pytest.mark.parametrize(("content", "why"), [(None, "not built; install a wheel"), (b"x", "cannot be loaded")])
def test_a_kernel_that_is_missing_is_named_once(content, why, tmp_path, monkeypatch):
    """At first use, in one sentence; what asks then goes on without it."""
    monkeypatch.delenv("LONGHMM_NATIVE", raising=False)
    monkeypatch.setattr(native, "__file__", str(tmp_path / "__init__.py"))
    for name in ("_load", "library"):  # as in a new process
        monkeypatch.setattr(native, name, cache(getattr(native, name).__wrapped__))
    if content is not None:
        (tmp_path / "library.so").write_bytes(content)
    with pytest.warns(UserWarning, match=f"Many times slower than it could be: fused kernel: {why}") as said:
        assert [native.available(), native.available(), native.usable()] == [False] * 3
    assert len(said) == 1 and why in native.status()


def test_a_build_that_fails_says_so_in_one_line(capsys):
    setup = module("setup", ROOT / "setup.py")
    build = setup.BuildKernel(Distribution())

    def fail(*_, **__):
        raise CompileError("command 'c++' failed: No such file or directory\nand much more")

    build.compiler, build.build_temp = SimpleNamespace(compile=fail), "nowhere"
    build.build_extension(Extension("longhmm.backends.native.library", ["dispatch.cc"]))
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "the fused kernel was not built" in said
    assert said.endswith("command 'c++' failed: No such file or directory\n")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="another platform")
def test_the_wheel_brings_its_kernel_where_there_is_no_compiler(tmp_path):
    """Built by Zig and installed into an empty environment without any other program, it runs the README's example."""
    maker, user = (tmp_path / name / "bin" / "python" for name in ("maker", "user"))
    for python in (maker, user):
        venv.create(python.parents[1], with_pip=True)
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(maker, *install, "auditwheel", "build", "jaxlib", "setuptools>=77", "ziglang")
    run(maker, ROOT / "tools" / "wheels.py", "linux-x86_64", "--out", tmp_path / "dist")
    (wheel,) = (tmp_path / "dist").glob("longhmm-*-py3-none-manylinux_2_17_x86_64.whl")
    alone = {"PATH": str(user.parent), "HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    run(user, *install, wheel, env=alone)
    doctor = json.loads(run(user.parent / "longhmm", "doctor", "--json", env=alone))
    assert re.fullmatch(r"fused kernel: (baseline|AVX2|AVX-512), \d+ threads", doctor["kernels"]["native"])
    instructions = module("instructions", ROOT / "tests" / "backends" / "native" / "test_native_instructions.py")
    setup = module("setup", ROOT / "setup.py")
    wide = [
        name for name in ("AVX-512", "AVX2") if setup.NEEDED[name.replace("-", "").lower()] <= setup.instructions_here()
    ]
    assert instructions.compare_all(str(user), alone) == [*wide, "baseline"]  # a wheel leaves none of them out
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    used = "\nfrom longhmm.backends.evaluate import choose\nprint('backend', choose(0, 2, False).name)"
    assert "backend cpp" in run(user, "-I", "-c", code + used, env=alone, cwd=tmp_path)


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
