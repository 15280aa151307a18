"""Wheels that carry the fused kernel: one for each platform, which serves every version of Python.

    python tools/wheels.py                            # all platforms, into dist/
    python tools/wheels.py linux-x86_64 macos-arm64   # some of them

The kernel knows nothing of Python, so that nothing but the platform is part of a wheel's name. It is compiled by Zig,
which carries the headers and libraries of every platform: `make wheels` installs it, and what else
is needed. The wheels of Linux are held to what their names promise; docs/installing.md says which were tried.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
KERNEL = "longhmm/backends/native/library.so"
# What Zig calls a platform, and what the name of a wheel says: on Linux every system with this glibc, or a later one.
PLATFORMS = {
    "linux-x86_64": ("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64"),
    "linux-aarch64": ("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64"),
    "macos-x86_64": ("x86_64-macos.11.0", "macosx_11_0_x86_64"),
    "macos-arm64": ("aarch64-macos.11.0", "macosx_11_0_arm64"),
    "windows-x86_64": ("x86_64-windows-gnu", "win_amd64"),
}


def compiled(target: str, include: Path, folder: Path) -> bytes:
    """The kernel for a platform."""
    from setup import COMMON, parts_for, source_of

    zig = [sys.executable, "-m", "ziglang", "c++", "-target", target, "-fno-sanitize=undefined", "-w"]
    objects = []
    for name, flags in parts_for(target.partition("-")[0]).items():
        objects.append(folder / f"{name}.o")
        position = [] if "windows" in target else ["-fPIC"]
        own = [*COMMON, *flags, *position, "-isystem", str(include)]
        subprocess.run([*zig, *own, "-c", str(ROOT / source_of(name)), "-o", str(objects[-1])], check=True)
    library = folder / "library.so"
    named = ["-Wl,-install_name,@rpath/library.so"] if "macos" in target else []  # else it is the path of this file
    subprocess.run([*zig, "-shared", "-pthread", "-s", *named, "-o", str(library), *map(str, objects)], check=True)
    return library.read_bytes()


def plain_wheel(folder: Path) -> Path:
    """The wheel without a kernel, from a clean copy: what earlier builds left behind must not get into it."""
    copy = folder / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("src", "reproduction"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "*.so"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(copy)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"LONGHMM_NATIVE": "0"})
    (found,) = folder.glob("*.whl")
    return found


def with_kernel(plain: Path, kernel: bytes, platform: str, out: Path) -> Path:
    """The same wheel with this kernel in it, named after the platform."""
    with zipfile.ZipFile(plain) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith((".so", "/RECORD"))}
    (about,) = (name for name in files if name.endswith(".dist-info/WHEEL"))
    kept = [line for line in files[about].decode().splitlines() if line and not line.startswith(("Tag", "Root-Is"))]
    lines = [*kept, "Root-Is-Purelib: false", f"Tag: py3-none-{platform}"]
    files |= {KERNEL: kernel, about: ("\n".join(lines) + "\n").encode()}
    name, version = plain.name.split("-")[:2]
    return write(files, about.replace("/WHEEL", "/RECORD"), out / f"{name}-{version}-py3-none-{platform}.whl")


def write(files: Mapping[str, bytes], record: str, place: Path) -> Path:
    """A wheel with its list of files; equal files give equal bytes."""
    listed = [f"{name},sha256={digest(content)},{len(content)}" for name, content in sorted(files.items())]
    text = "\n".join([*listed, f"{record},,"]) + "\n"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in [*sorted(files.items()), (record, text.encode())]:
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, content)
    return place


def audited(wheel: Path) -> Path:
    """The same wheel, if it asks of a system no more than its name says."""
    if "manylinux" in wheel.name:
        command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        tag = wheel.stem.rpartition("-")[2]
        if f'platform tag: "{tag}"' not in " ".join(said.split()):
            raise SystemExit(f"{wheel.name} is not what its name says: {said}")
    return wheel


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")


def main() -> None:
    import jaxlib

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=f"of {', '.join(PLATFORMS)}; all by default")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    if unknown := set(given.platforms) - set(PLATFORMS):
        parser.error(f"{sorted(unknown)[0]} is not one of {', '.join(PLATFORMS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    include = Path(jaxlib.__file__).parent / "include"
    with tempfile.TemporaryDirectory() as scratch:
        plain = plain_wheel(Path(scratch))
        for name in given.platforms or PLATFORMS:
            target, platform = PLATFORMS[name]
            folder = Path(scratch) / name
            folder.mkdir()
            print(audited(with_kernel(plain, compiled(target, include, folder), platform, given.out)), flush=True)


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
