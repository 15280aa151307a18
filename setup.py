"""Builds the fused kernel where there is a C++ compiler; without one the package installs and runs in pure JAX."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/longhmm/backends/native")
COMMON = ["-O3", "-g0", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"]


def sources_for(machine: str) -> dict[str, list[str]]:
    """Sources with the flags of their own. There is one for each instruction set; which of them runs is decided by the
    processor, when the library is loaded."""
    found: dict[str, list[str]] = {name: [] for name in ("dispatch.cc", "plain.cc", "compiled.cc", "compiled_paths.cc")}
    found["variant_baseline.cc"] = []
    if machine.lower() in ("x86_64", "amd64"):
        found["variant_avx2.cc"] = ["-mavx2", "-mfma"]
        found["variant_avx512.cc"] = [f"-mavx512{each}" for each in ("f", "dq", "vl", "bw")]
        found["variant_avx512.cc"] += ["-mfma", "-mprefer-vector-width=512"]
    return found


class BuildKernel(build_ext):
    """Compiles each source with the flags of its own instruction set."""

    def get_ext_filename(self, fullname: str) -> str:
        # It is loaded by name, knows nothing of Python, and so serves every version.
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def build_extension(self, ext: Any) -> None:
        import jaxlib

        include = str(Path(jaxlib.__file__).parent / "include")
        objects = []
        for source in ext.sources:
            flags = COMMON + sources_for(platform.machine())[Path(source).name]
            objects += self.compiler.compile(
                [source], output_dir=self.build_temp, extra_postargs=[*flags, "-isystem", include], depends=ext.depends
            )
        self.compiler.link_shared_object(
            objects, self.get_ext_fullpath(ext.name), target_lang="c++", extra_postargs=["-pthread"]
        )


if __name__ == "__main__":
    setup(
        ext_modules=[
            Extension(
                "longhmm.backends.native.library",
                sources=[str(SOURCES / name) for name in sources_for(platform.machine())],
                depends=[str(path) for path in sorted(SOURCES.glob("*.h"))],
                language="c++",
                optional=True,
            )
        ],
        cmdclass={"build_ext": BuildKernel},
    )
