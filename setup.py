"""Builds the fused kernel where there is a C++ compiler; without one the package installs and runs in pure JAX.

`LONGHMM_NATIVE=0` leaves it out. A checkout is built for the processor it lies on: what serves others is left out, or
slow and soon compiled. `LONGHMM_INSTRUCTIONS=all` builds everything, as wheels have it.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/longhmm/backends/native")
KERNEL = ("dispatch", "compiled", "compiled_paths")
COMMON = ["-O3", "-g0", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"]
# Instruction sets, best first: bytes of a vector, and flags.
SETS = {
    "avx512": (64, [*(f"-mavx512{each}" for each in ("f", "dq", "vl", "bw")), "-mfma", "-mprefer-vector-width=512"]),
    "avx2": (32, ["-mavx2", "-mfma"]),
    "baseline": (16, []),
}
# What a processor must have for the wide ones.
NEEDED = {"avx512": {"avx512f", "avx512dq", "avx512vl", "avx512bw", "avx2", "fma"}, "avx2": {"avx2", "fma"}}


def parts_for(machine: str) -> dict[str, list[str]]:
    """What is compiled, the longest first, with flags of its own: two parts for each instruction set. Which of
    them run is decided by the processor, when the library is loaded."""
    x86 = machine.lower() in ("x86_64", "amd64")
    found: dict[str, list[str]] = {}
    for name, (size, flags) in SETS.items():
        if x86 or name not in NEEDED:
            double, single = variant(name)
            found[double] = [f"-DVARIANT={name}", f"-DVECTOR_BYTES={size}", *flags]
            found[single] = ["-DSINGLE", *found[double]]
    return found | {name: [] for name in KERNEL}


def variant(instructions: str) -> tuple[str, str]:
    return f"variant_{instructions}", f"variant_{instructions}_single"


def source_of(part: str) -> str:
    """The file that a part is compiled from."""
    return str(SOURCES / f"{part if part in KERNEL else 'variant'}.cc")


def only_for(instructions: set[str], parts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Parts for a processor with these instructions; what runs on any other is kept, slow and soon compiled."""
    best = next((each for each in NEEDED if NEEDED[each] <= instructions), "baseline")
    others = [each for each in NEEDED if each != best]
    found = {name: flags for name, flags in parts.items() if not any(name in variant(each) for each in others)}
    if best != "baseline":
        found |= {name: [*found[name], "-O1", "-DANY_STATES"] for name in variant("baseline")}
    return found | {"dispatch": [f"-DWITHOUT_{each.upper()}" for each in others]}


def instructions_here() -> set[str]:
    """What the processor can do, as far as the system says."""
    try:
        said = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return set()
    return set(said[1].split()) if said else set()


class BuildKernel(build_ext):
    """Compiles each source with the flags of its own instruction set."""

    in_checkout = False

    def run(self) -> None:
        self.in_checkout = bool(self.inplace or self.editable_mode)  # asked here, since setuptools forgets it later
        super().run()

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
        parts, here = parts_for(platform.machine()), instructions_here()
        if self.in_checkout and here and os.environ.get("LONGHMM_INSTRUCTIONS") != "all":
            parts = only_for(here, parts)

        def compiled(part: str) -> list[str]:
            place, flags = str(Path(self.build_temp) / part), [*COMMON, *parts[part], "-isystem", include]
            return self.compiler.compile([source_of(part)], output_dir=place, extra_postargs=flags, depends=ext.depends)

        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each thread waits for a compiler
            objects = [each for found in pool.map(compiled, parts) for each in found]
        self.compiler.link_shared_object(
            objects, self.get_ext_fullpath(ext.name), target_lang="c++", extra_postargs=["-pthread"]
        )


if __name__ == "__main__":
    kernel = Extension(
        "longhmm.backends.native.library",
        sources=sorted({source_of(part) for part in parts_for(platform.machine())}),
        depends=[str(path) for path in sorted(SOURCES.glob("*.h"))],
        language="c++",
        optional=True,
    )
    wanted = os.environ.get("LONGHMM_NATIVE", "1") != "0"
    setup(ext_modules=[kernel] if wanted else [], cmdclass={"build_ext": BuildKernel})
