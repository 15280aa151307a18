"""Builds the fused kernel where there is a C++ compiler; without one the package installs and runs in pure JAX.

`LONGHMM_NATIVE=0` leaves it out.
"""

from __future__ import annotations

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/longhmm/backends/native")
KERNEL = ("dispatch.cc", "compiled.cc", "compiled_paths.cc")
COMMON = ["-O3", "-g0", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"]


def sources_for(machine: str) -> dict[str, list[str]]:
    """Sources with the flags of their own. There is one for each instruction set; which of them runs is decided by the
    processor, when the library is loaded."""
    found: dict[str, list[str]] = {name: [] for name in KERNEL}
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
        try:
            self.compile_and_link(ext)
        except Exception as error:  # whatever it is: longhmm works without, and says so when it is first used
            why = str(error).partition("\n")[0]
            print(
                f"longhmm: the fused kernel was not built, so that fits are many times slower: {why}", file=sys.stderr
            )

    def compile_and_link(self, ext: Any) -> None:
        import jaxlib

        include = str(Path(jaxlib.__file__).parent / "include")

        def compiled(source: str) -> list[str]:
            flags = [*COMMON, *sources_for(platform.machine())[Path(source).name], "-isystem", include]
            return self.compiler.compile(
                [source], output_dir=self.build_temp, extra_postargs=flags, depends=ext.depends
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each thread waits for a compiler
            objects = [each for found in pool.map(compiled, ext.sources) for each in found]
        self.compiler.link_shared_object(
            objects, self.get_ext_fullpath(ext.name), target_lang="c++", extra_postargs=["-pthread"]
        )


if __name__ == "__main__":
    kernel = Extension(
        "longhmm.backends.native.library",
        sources=[str(SOURCES / name) for name in sources_for(platform.machine())],
        depends=[str(path) for path in sorted(SOURCES.glob("*.h"))],
        language="c++",
        optional=True,
    )
    wanted = os.environ.get("LONGHMM_NATIVE", "1") != "0"
    setup(ext_modules=[kernel] if wanted else [], cmdclass={"build_ext": BuildKernel})
